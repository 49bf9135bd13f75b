"""The operator's process: election, then watching, working and looking, all at once.

    leader ──leads──▶ kopf watches ──keys──▶ work queue ──▶ N workers ──▶ reconcile ──▶ weight-sync loops
                                                ▲  ▲
                           periodic (Secrets, telemetry, resync)

Every loop that ends takes the process down. A standby serves /healthz and /readyz and waits for the lead.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from openclaw_core import names, tasks
from openclaw_core.kube import Kube, KubeError
from openclaw_operator import handlers
from openclaw_operator.facts import previous_status
from openclaw_operator.images import Images
from openclaw_operator.leader import Leader
from openclaw_operator.periodic import Periodic
from openclaw_operator.queue import WorkQueue
from openclaw_operator.reconcile import Reconciler
from openclaw_operator.server import Metrics, build_app
from openclaw_operator.training import Key

log = logging.getLogger(__name__)
WORKERS = 4
_TRANSIENT = (KubeError, aiohttp.ClientError, TimeoutError)


@dataclass(frozen=True)
class Options:
    """How this process runs."""

    images: Images
    identity: str
    lease_namespace: str
    lease_name: str = "openclaw-operator"
    namespaces: tuple[str, ...] = ()
    port: int = names.PORT_OPERATOR


async def run(kube: Kube, options: Options, stop: asyncio.Event) -> None:
    """Until `stop`, or until something fails."""
    metrics, leader = Metrics(), Leader(kube, options.lease_namespace, options.lease_name, options.identity)
    work = _Work(kube, options, metrics, stop)
    runner = web.AppRunner(build_app(metrics, collect=work.collect), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", options.port).start()
    try:
        await tasks.run_all({"leader": leader.run(), "work": _lead(leader, work)}, stop=stop)
    finally:
        await leader.release()
        await runner.cleanup()


async def _lead(leader: Leader, work: "_Work") -> None:
    await leader.leading.wait()
    await work.run()


class _Work:
    """Everything that happens only while leading."""

    def __init__(self, kube: Kube, options: Options, metrics: Metrics, stop: asyncio.Event) -> None:
        self._kube, self._options, self._metrics, self._stop = kube, options, metrics, stop
        self._queue: WorkQueue[Key] = WorkQueue()
        self._reconciler: Reconciler | None = None

    async def run(self) -> None:
        self._metrics.leading.set(1)
        # One connection per call: an engine's kept-alive connection may be closing just when a hold needs it.
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
            self._reconciler = Reconciler(
                self._kube,
                session,
                self._options.images,
                identity=self._options.identity,
                tasks=group,
                enqueue=self._queue.add,
            )
            periodic = Periodic(self._reconciler, session, self._changed)
            group.create_task(_endless(handlers.watch(self._seen, self._options.namespaces, self._spawned), "kopf"))
            group.create_task(periodic.run())
            for _ in range(WORKERS):
                group.create_task(self._worker(self._reconciler))

    def collect(self) -> None:
        """Bring gauges up to date."""
        self._metrics.queued.set(len(self._queue))
        self._metrics.clear_trainings()
        if self._reconciler is not None:
            self._metrics.trainings.set(len(self._reconciler.states))
            for key, state in self._reconciler.states.items():
                if state.seen is not None:
                    self._metrics.show(key.namespace, key.name, previous_status(state.seen.body))
            self._metrics.writes.set(self._reconciler.applier.writes + self._reconciler.reporter.writes)

    def _spawned(self) -> None:
        tasks.set_on_signals(self._stop)

    def _seen(self, key: Key) -> None:
        self._changed(key, True)

    def _changed(self, key: Key, afresh: bool) -> None:
        if afresh and self._reconciler is not None:
            self._reconciler.invalidate(key)
        self._queue.add(key)

    async def _worker(self, reconciler: Reconciler) -> None:
        while True:
            key = await self._queue.get()
            started, failed = time.monotonic(), False
            try:
                await reconciler.reconcile(key)
            except _TRANSIENT as error:
                failed = True
                log.warning("reconcile failed: %s", error or type(error).__name__, extra={"training": str(key)})
            except Exception:
                # The outermost loop: a bug in one training's pass must not stop the others. It is logged, counted
                # and tried again with backoff.
                failed = True
                log.exception("reconcile failed", extra={"training": str(key)})
            self._metrics.passes.labels("failed" if failed else "ok").inc()
            self._metrics.seconds.observe(time.monotonic() - started)
            self._queue.done(key, failed=failed)


async def _endless(loop: Awaitable[None], name: str) -> None:
    await loop
    raise tasks.LoopEndedError(f"background loop {name!r} ended")
