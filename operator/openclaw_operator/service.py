"""The operator's process: election, then watching, working and looking, all at once.

    election ──leads─▶ kopf watches ──▶ index ──keys──▶ work queue ──▶ N workers ──▶ reconcile ──▶ weight-sync loops
                                                          ▲  ▲
                           periodic (Secrets, telemetry, resync)        watchdog ──silent watch──▶ the process ends

Every loop that ends takes the process down. A standby serves /healthz and /readyz and waits for the lead.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import aiohttp
from aiohttp import web

from openclaw_core import names, tasks
from openclaw_core.kube import Kube, KubeError
from openclaw_operator import handlers, kinds
from openclaw_operator.builders.network import Network
from openclaw_operator.election import Election
from openclaw_operator.facts import previous_status
from openclaw_operator.images import Images
from openclaw_operator.leader import Leader
from openclaw_operator.metrics import Metrics
from openclaw_operator.periodic import Change, Periodic
from openclaw_operator.queue import WorkQueue
from openclaw_operator.reconcile import Reconciler, State
from openclaw_operator.server import build_app
from openclaw_operator.training import Key
from openclaw_operator.watchdog import Watchdog

log = logging.getLogger(__name__)
LEASE_NAME = "openclaw-operator"
KEEP_ALIVE_SEC = 2.0
"""Connections to pods stay open this long: from the preparation of engines to their update."""
WORKERS = 4
PASS_LIMIT_SEC = 120.0
"""Longest pass over one training; each of its requests is bounded too."""
STALLED_SEC = 60.0
_TRANSIENT = (KubeError, aiohttp.ClientError, TimeoutError)


@dataclass(frozen=True)
class Options:
    """How this process runs."""

    images: Images
    identity: str
    lease_namespace: str
    lease_name: str = LEASE_NAME
    namespaces: tuple[str, ...] = ()
    port: int = names.PORT_OPERATOR
    network: Network = field(default_factory=Network)


async def run(kube: Kube, connect: Callable[[], Kube], options: Options, stop: asyncio.Event) -> None:
    """Until `stop`, or until something fails. `connect` makes another client, for the election's thread."""
    stand = partial(Leader, namespace=options.lease_namespace, name=options.lease_name, identity=options.identity)
    metrics, election = Metrics(), Election(stand, connect)
    work = _Work(kube, options, metrics, stop)
    runner = web.AppRunner(build_app(metrics, collect=work.collect, unhealthy=work.fault), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", options.port).start()
    try:
        await tasks.run_all({"election": election.run(), "work": _lead(election, work)}, stop=stop)
    finally:
        await election.release(kube)
        await runner.cleanup()


async def _lead(election: Election, work: "_Work") -> None:
    await election.leading.wait()
    await work.run()


class _Work:
    """Everything that happens only while leading."""

    def __init__(self, kube: Kube, options: Options, metrics: Metrics, stop: asyncio.Event) -> None:
        self._kube, self._options, self._metrics, self._stop = kube, options, metrics, stop
        self._queue: WorkQueue[Key] = WorkQueue()
        self._reconciler: Reconciler | None = None
        self._periodic: Periodic | None = None
        self._watchdog: Watchdog | None = None

    async def run(self) -> None:
        self._metrics.leading.set(1)
        groups = await _has_groups(self._kube)
        applied = (*kinds.APPLIED, kinds.LEADER_WORKER_SET) if groups else kinds.APPLIED
        self._watchdog = watchdog = Watchdog(self._kube, self._options.namespaces)
        # Kept shorter than any server keeps it: no connection may be closing just when a hold needs it.
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_SEC)
        async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
            self._reconciler = Reconciler(
                self._kube,
                session,
                self._options.images,
                identity=self._options.identity,
                tasks=group,
                enqueue=self._queue.add,
                groups=groups,
                network=self._options.network,
            )
            self._periodic = Periodic(self._reconciler, session, self._changed)
            watch = handlers.watch(self._told, self._options.namespaces, self._spawned, applied)
            group.create_task(_endless(watch, "kopf"))
            group.create_task(watchdog.run())
            group.create_task(self._periodic.run())
            for _ in range(WORKERS):
                group.create_task(self._worker(self._reconciler))

    def fault(self) -> str | None:
        """What keeps this process from doing its work; None = nothing. A standby has none."""
        if self._periodic is None:
            return None
        idle = asyncio.get_running_loop().time() - self._periodic.ticked_at
        return f"the clock loop has not ticked for {idle:.0f} s" if idle > STALLED_SEC else None

    def collect(self) -> None:
        """Bring gauges up to date."""
        self._metrics.queued.set(len(self._queue))
        self._metrics.lag.set(self._queue.lag_sec())
        self._metrics.clear_trainings()
        if self._reconciler is not None:
            self._metrics.trainings.set(len(self._reconciler.states))
            for state in self._reconciler.states.values():
                self._show(state)
            self._metrics.wrote({**self._reconciler.applier.writes, names.KIND: self._reconciler.reporter.writes})

    def _show(self, state: State) -> None:
        if state.seen is None:
            return
        spec = state.training.spec if state.training is not None else None
        self._metrics.show(
            state.key.namespace,
            state.key.name,
            previous_status(state.seen.body),
            uid=state.uid,
            model=spec.model.served_name if spec else "",
            method=spec.policy_training.method if spec else "",
        )

    def _spawned(self) -> None:
        tasks.set_on_signals(self._stop)

    def _told(self, key: Key, kind: str, event: str | None, body: Mapping[str, Any]) -> None:
        """One event of a watch."""
        if self._watchdog is not None and kind == names.KIND:
            self._watchdog.heard(key, str(body["metadata"].get("resourceVersion") or ""), event == "DELETED")
        if self._reconciler is not None and self._reconciler.told(key, kind, event, dict(body)):
            self._queue.add(key)

    def _changed(self, key: Key, change: Change) -> None:
        if self._reconciler is not None and change is not Change.NUMBERS:
            self._reconciler.invalidate(key, doubt=change is Change.UNKNOWN)
        self._queue.add(key)

    async def _worker(self, reconciler: Reconciler) -> None:
        while True:
            key = await self._queue.get()
            started = time.monotonic()
            failure: Exception | None = None
            try:
                async with asyncio.timeout(PASS_LIMIT_SEC):
                    await reconciler.reconcile(key)
            except _TRANSIENT as error:
                failure = error
                log.warning("reconcile failed: %s", error or type(error).__name__, extra={"training": str(key)})
            except Exception as error:
                # The outermost loop: a bug in one training's pass must not stop the others. It is logged, counted
                # and tried again with backoff.
                failure = error
                log.exception("reconcile failed", extra={"training": str(key)})
            self._metrics.passed(time.monotonic() - started, failure)
            self._queue.done(key, failed=failure is not None)


async def _has_groups(kube: Kube) -> bool:
    """Whether the cluster serves LeaderWorkerSets. A cluster that gets them later needs a restart of the operator."""
    try:
        await kube.get(f"/apis/{kinds.LEADER_WORKER_SET.api_version}")
    except KubeError:
        return False
    return True


async def _endless(loop: Awaitable[None], name: str) -> None:
    await loop
    raise tasks.LoopEndedError(f"background loop {name!r} ended")
