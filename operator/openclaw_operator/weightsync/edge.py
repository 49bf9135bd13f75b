"""Carries out what the weight-sync machine asks for, one loop per training.

    reconcile ──World──▶ inbox ──▶ machine.handle ──▶ actions ──▶ tasks (Lease, target.json, agents, gateways)
                           ▲                                        │
                           └──────────── answers ───────────────────┘      timer: machine.next_wake

The inbox is unbounded but every answer belongs to an action, and the machine has at most one open per engine, gateway
and object. A task that fails in an unforeseen way takes the loop, and with it the process, down.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime

import aiohttp

from openclaw_core import names
from openclaw_core.kube import Kube, KubeError, Object
from openclaw_core.leases import LeaseFormatError, parse_weight_sync, render_weight_sync
from openclaw_core.versions import Target
from openclaw_core.wire import Sync, Transfer
from openclaw_operator import kinds
from openclaw_operator.builders import metadata
from openclaw_operator.events import Event, Recorder
from openclaw_operator.training import Training
from openclaw_operator.weightsync import model as m
from openclaw_operator.weightsync.agents import Agents, host
from openclaw_operator.weightsync.gateways import Gateways
from openclaw_operator.weightsync.machine import Machine
from openclaw_operator.weightsync.swap import SwapMachine
from openclaw_operator.weightsync.view import view

log = logging.getLogger(__name__)
FIELD_MANAGER = "openclaw-weight-sync"
LOOK_IN_HOLD_SEC = 1.0
"""The status says that submissions are paused this long after the hold began; most are over by then."""
_API_FAILURES = (KubeError, aiohttp.ClientError, TimeoutError)


def machine_for(training: Training) -> type[Machine]:
    """How versions of this training are exchanged: under a hold, or side by side where they are adapters."""
    return Machine if training.spec.policy_training.adapter is None else SwapMachine


@dataclass(frozen=True)
class Tokens:
    """Generated tokens of Secret `<name>-internal`."""

    gateway: str = field(default="", repr=False)
    agent: str = field(default="", repr=False)


class SyncLoop:
    """Runs one training's machine. `changed` is called when its view changed."""

    def __init__(
        self,
        training: Training,
        *,
        identity: str,
        kube: Kube,
        session: aiohttp.ClientSession,
        recorder: Recorder,
        changed: Callable[[], None],
    ) -> None:
        self._training = training
        self._kube, self._session, self._recorder, self._changed = kube, session, recorder, changed
        self._machine = machine_for(training)(identity, asyncio.get_running_loop().time())
        self._inbox: asyncio.Queue[m.Told] = asyncio.Queue()
        self._world: m.World | None = None
        self._measured = m.Measured()
        self._tokens = Tokens()
        self._view = view(self._machine)
        self._look_after = float("-inf")

    @property
    def view(self) -> m.SyncView:
        return self._view

    def fits(self, training: Training) -> bool:
        """False when `lora.publish` changed since: versions are now exchanged in another way."""
        return type(self._machine) is machine_for(training)

    def update(self, training: Training, world: m.World, tokens: Tokens) -> None:
        """What the reconcile saw; ignored by the machine when nothing differs."""
        self._training, self._tokens = training, tokens
        if world != self._world:
            self._world = world
            self._inbox.put_nowait(world)

    def measured(self, found: m.Measured) -> None:
        """What store and trainer say; the machine is told when it says something new."""
        if found != self._measured:
            self._measured = found
            self._inbox.put_nowait(found)

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            while True:
                told = await self._next(self._machine.next_wake() - loop.time())
                actions = self._machine.handle(told, loop.time(), datetime.now(UTC))
                together = sum(isinstance(action, m.SyncEngine) and not action.again for action in actions)
                for action in actions:
                    for work in self._works(action, together):
                        tasks.create_task(work)
                self._look()

    async def _next(self, timeout: float) -> m.Told:
        try:
            async with asyncio.timeout(max(timeout, 0.0)):
                return await self._inbox.get()
        except TimeoutError:
            return m.Tick()

    def _look(self) -> None:
        """Note what changed for the status, but not in the moments that users wait for: a pass of the reconcile would
        take its share of them."""
        moment = asyncio.get_running_loop().time()
        if not self._machine.holding:
            self._look_after = moment + LOOK_IN_HOLD_SEC
        elif moment < self._look_after:
            return
        now = view(self._machine)
        if now != self._view:
            self._changed()
        self._view = now

    def _works(self, action: m.Action, together: int) -> list[Coroutine[None, None, None]]:
        """What an action asks for, in the order in which it should leave this process.

        A word to gateways is one task for each right here: users wait for it, so it goes before the writes that the
        machine asks for in the same moment.
        """
        if not isinstance(action, m.TellGateways):
            return [self._perform(action, together)]
        gateways = Gateways(self._session, self._tokens.gateway)
        body = action.paused.model_dump_json(exclude_none=True).encode()
        pods = self._world.gateways if self._world is not None else ()
        return [self._tell(gateways, pod, body) for pod in pods]

    async def _perform(self, action: m.Action, together: int) -> None:
        """`together`: engines that are told to sync in this same moment, who may share a transfer."""
        match action:
            case m.ReadLease():
                self._inbox.put_nowait(await self._read_lease())
            case m.WriteLease():
                self._inbox.put_nowait(await self._write_lease(action))
            case m.WriteTarget(version):
                self._inbox.put_nowait(await self._write_target(version))
            case m.PollAgent(uid):
                ip = self._ip(uid)
                state = await self._agents().state(ip) if ip else None
                self._inbox.put_nowait(m.AgentSeen(uid, state))
            case m.PrepareEngine(uid, version):
                ip = self._ip(uid)
                error = await self._agents().prepare(ip, version) if ip else "the pod has no address"
                self._inbox.put_nowait(m.PrepareEnded(uid, version, error))
            case m.SyncEngine():
                self._inbox.put_nowait(await self._sync(action, together))
            case m.RetainAdapters(uid, versions):
                if ip := self._ip(uid):
                    await self._agents().retain(ip, versions)
            case m.Announce(kind, reason, message):
                await self._recorder.post(self._training.key, self._training.uid, Event(kind, reason, message))

    async def _read_lease(self) -> m.Told:
        try:
            return _seen(await self._kube.get(self._lease_path()))
        except _API_FAILURES as error:
            return m.LeaseFailed(str(error))

    async def _write_lease(self, action: m.WriteLease) -> m.Told:
        patch = render_weight_sync(action.state)
        patch["metadata"]["resourceVersion"] = action.resource_version
        try:
            return _seen(await self._kube.merge_patch(self._lease_path(), patch, field_manager=FIELD_MANAGER))
        except _API_FAILURES as error:
            log.warning("Lease not written: %s", error, extra={"training": str(self._training.key)})
            return m.LeaseFailed(str(error))

    async def _write_target(self, version: str) -> m.TargetWritten:
        training = self._training
        name = names.target_config_map(training.name)
        body = metadata.child(training, "v1", "ConfigMap", name)
        body["data"] = {"target.json": Target(version=version).model_dump_json()}
        try:
            path = kinds.CONFIG_MAP.path(training.namespace, name)
            await self._kube.apply(path, body, field_manager=FIELD_MANAGER)
        except _API_FAILURES as error:
            log.warning("target not written: %s", error, extra={"training": str(training.key)})
            return m.TargetWritten(None)
        return m.TargetWritten(version)

    async def _sync(self, action: m.SyncEngine, together: int) -> m.SyncEnded:
        ip = self._ip(action.uid)
        if ip is None:
            return m.SyncEnded(action.uid, action.epoch, action.version, None, "the pod is gone")
        sender = self._world.sender if self._world is not None else None
        transfer = transfer_for(action, sender, together)
        sync = Sync(epoch=action.epoch, version=action.version, deadline_sec=action.deadline_sec, transfer=transfer)
        answer, error, refused = await self._agents().sync(ip, sync)
        return m.SyncEnded(action.uid, action.epoch, action.version, answer, error, refused)

    async def _tell(self, gateways: Gateways, pod: m.GatewayPod, body: bytes) -> None:
        ack = await gateways.tell(pod, body)
        if ack is not None:
            self._inbox.put_nowait(m.GatewayAcked(pod.uid, ack.epoch))

    def _agents(self) -> Agents:
        return Agents(self._session, self._tokens.agent)

    def _ip(self, uid: str) -> str | None:
        pods = self._world.engines if self._world is not None else ()
        return next((pod.ip for pod in pods if pod.uid == uid), None)

    def _lease_path(self) -> str:
        training = self._training
        return kinds.LEASE.path(training.namespace, names.weight_sync_lease(training.name))


def transfer_for(action: m.SyncEngine, sender: str | None, together: int) -> Transfer | None:
    """Where an engine gets the version in place of the volume; None: it reads the volume."""
    if sender is None or action.again:
        return None
    return Transfer(url=f"http://{host(sender)}:{names.PORT_SENDER}", engines=together)


def _seen(lease: Object) -> m.LeaseSeen | m.LeaseGarbled:
    version = str(lease["metadata"]["resourceVersion"])
    try:
        return m.LeaseSeen(parse_weight_sync(lease), version)
    except LeaseFormatError as error:
        return m.LeaseGarbled(str(error), version)
