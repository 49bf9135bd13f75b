"""An operator process: the real machine, and the calls it makes. It may be killed, frozen, or not be the only one."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from openclaw_core.wire import Sync, Synced
from openclaw_operator.weightsync import model as m
from tests.fakes.sync_system import lease_server

if TYPE_CHECKING:
    from tests.fakes.sync_system.system import System

RESYNC_SEC = 4.0
CALL_SLACK_SEC = 3.0


class Operator:
    """`skew`: its wall clock is off by so many seconds. Open calls of a killed one go on; nobody hears the answers."""

    def __init__(self, identity: str, system: "System", skew: float) -> None:
        self.identity, self.skew = identity, skew
        self._system, self._time = system, system.time
        self.machine = system.machine(identity, self._time.now)
        self.alive = True
        self.frozen_until = 0.0
        self.announced: list[m.Announce] = []
        self._wake_at = float("inf")
        self._resync()

    def _resync(self) -> None:
        if self.alive:
            self.tell(self._system.seen())
            if self._system.rollout is not None:
                self.tell(self._system.measured())
            self._time.at(RESYNC_SEC, self._resync)

    def tell(self, told: m.Told) -> None:
        if not self.alive:
            return
        now = self._time.now
        if now < self.frozen_until:
            self._time.at(self.frozen_until - now, lambda: self.tell(told))
            return
        for action in self.machine.handle(told, now, lease_server.wall(self._time, self.skew)):
            self._perform(action)
        self._set_wake(self.machine.next_wake())

    def _set_wake(self, wake: float) -> None:
        if wake < self._wake_at - 1e-9:
            self._wake_at = wake
            self._time.at(wake - self._time.now, lambda: self._tick(wake))

    def _tick(self, wake: float) -> None:
        if wake != self._wake_at:
            return
        self._wake_at = float("inf")
        self.tell(m.Tick())

    # ------------------------------------------------------------ calls

    def _perform(self, action: m.Action) -> None:
        match action:
            case m.PollAgent(uid):
                self._call(lambda: self._poll(uid))
            case m.ReadLease():
                self._call(lambda: self._from_api(self._system.server.read()))
            case m.WriteLease():
                self._write(action)
            case m.WriteTarget(wanted):
                self._call(lambda: self._from_api(self._system.server.write_target(wanted)))
            case m.PrepareEngine(uid, version):
                self._time.at(self._time.between(0.01, 1.0), lambda: self._prepare(uid, version))
            case m.SyncEngine():
                self._call(lambda: self._sync(action))
                if self._time.now < self._system.crashes_until:
                    self._system.crash(self)
            case m.TellGateways():
                self._tell_gateways(action)
            case m.Announce():
                self.announced.append(action)

    def _call(self, arrive: Callable[[], None]) -> None:
        self._time.at(self._system.network.delay(), arrive)

    def _answer(self, told: m.Told) -> None:
        self._time.at(self._system.network.delay(), lambda: self.tell(told))

    def _from_api(self, told: m.Told) -> None:
        self._answer(told)

    def _write(self, action: m.WriteLease) -> None:
        """Its request or its answer may be lost; a request given up for lost may still land, much later."""
        network, server = self._system.network, self._system.server

        def arrive() -> None:
            told = server.write(action)
            self._answer(m.LeaseFailed("lost") if network.loses() else told)

        if network.loses():
            self._time.at(self._time.between(0.0, 5.0), lambda: server.write(action))
            self._answer(m.LeaseFailed("timeout"))
        else:
            self._call(arrive)

    def _poll(self, uid: str) -> None:
        engine = self._system.engines.get(uid)
        if engine is None or engine.silent() or self._system.network.loses():
            self._time.at(3.0, lambda: self.tell(m.AgentSeen(uid, None)))
        else:
            self._answer(m.AgentSeen(uid, engine.state()))

    def _prepare(self, uid: str, version: str) -> None:
        engine = self._system.engines.get(uid)
        lost = engine is None or engine.silent() or self._system.network.loses()
        error = "no answer" if lost or engine is None else engine.prepare(version)
        self._answer(m.PrepareEnded(uid, version, error))

    def _sync(self, action: m.SyncEngine) -> None:
        heard = False

        def ended(answer: Synced | None, error: str | None) -> None:
            nonlocal heard
            if not heard:
                heard = True
                self._answer(m.SyncEnded(action.uid, action.epoch, action.version, answer, error))

        def answered(answer: Synced | None, error: str | None) -> None:
            if not self._system.network.loses():
                ended(answer, error)

        self._time.at(action.deadline_sec + CALL_SLACK_SEC, lambda: ended(None, "timeout"))
        engine = self._system.engines.get(action.uid)
        if engine is not None and not engine.silent() and not self._system.network.loses():
            engine.sync(
                Sync.model_construct(epoch=action.epoch, version=action.version, deadline_sec=action.deadline_sec),
                answered,
            )

    def _tell_gateways(self, action: m.TellGateways) -> None:
        for gateway in list(self._system.gateways.values()):
            self._call(lambda gateway=gateway: self._post(gateway.uid, action))  # type: ignore[misc]

    def _post(self, uid: str, action: m.TellGateways) -> None:
        gateway = self._system.gateways.get(uid)
        if gateway is None or self._system.network.loses():
            return
        epoch = gateway.post(action.paused)
        if epoch is not None:
            self._answer(m.GatewayAcked(uid, epoch))
