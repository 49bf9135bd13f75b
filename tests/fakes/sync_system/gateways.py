"""A gateway: the real rules of its pause, fed by watch and by post, in a process that may restart or be cut off."""

from openclaw_core.wire import Paused
from openclaw_gateway.pause import Pause
from tests.fakes.sync_system import lease_server
from tests.fakes.sync_system.lease_server import Content, LeaseServer
from tests.fakes.sync_system.network import Network
from tests.fakes.sync_system.timeline import Timeline


class Gateway:
    """`uid` is the pod's. Watch events arrive in order; while cut off none do, and a list follows."""

    def __init__(self, uid: str, time: Timeline, server: LeaseServer, network: Network, *, skew: float) -> None:
        self.uid, self.skew = uid, skew
        self._time, self._server, self._network = time, server, network
        self.cut_until = 0.0
        self.process = 0
        self.pause = Pause()
        self.alive = True
        self._heard_at = 0.0
        self._broken = False
        server.watchers.append(self.event)
        self._list(0)

    def restart(self, back_in: float) -> None:
        self.process += 1
        self.alive, process = False, self.process
        self._time.at(back_in, lambda: self._start(process))

    def _start(self, process: int) -> None:
        if process == self.process:
            self.alive, self.pause, self._broken = True, Pause(), False
            self._list(process)

    # ------------------------------------------------------------ hearing

    def event(self, content: Content) -> None:
        """The API server sends a watch event: in order, and all or none of a connection's."""
        if self._broken or not self.alive:
            return
        if self._time.now < self.cut_until or self._network.loses():
            self._break()
            return
        process = self.process
        self._heard_at = max(self._heard_at, self._time.now + self._network.delay())
        self._time.at(self._heard_at - self._time.now, lambda: self._hear(process, content))

    def _break(self) -> None:
        """The watch ends; the gateway lists again with a backoff, for as long as that fails."""
        self._broken, process = True, self.process
        self._time.at(self._time.between(0.1, 10.0), lambda: self._list(process))

    def _list(self, process: int) -> None:
        if process != self.process:
            return
        if self._server.down() or self._time.now < self.cut_until:
            self._break()
            return
        self._broken = False
        if self._server.exists:
            self._hear(process, self._server.content)

    def _hear(self, process: int, content: Content) -> None:
        if process != self.process or not self.alive or self._broken:
            return
        if content is None:
            self._break()  # LeaseFormatError breaks the watch
        elif content.hold is not None:
            age = (lease_server.wall(self._time, self.skew) - content.hold.acquired_at).total_seconds()
            self._hold(content.hold.epoch, content.hold.duration_sec, age)
        else:
            self.pause.release(content.served_epoch, content.serving_version, self._time.now, content.canary)

    def post(self, paused: Paused) -> int | None:
        """The operator's direct word; the epoch it answers with."""
        if not self.alive or self._time.now < self.cut_until:
            return None
        if paused.lease_sec > 0:
            self._hold(paused.epoch, paused.lease_sec, 0.0)
        else:
            self.pause.release(paused.epoch, paused.serving_version, self._time.now, paused.canary)
        return self.pause.epoch

    # ------------------------------------------------------------ what must be true

    def _hold(self, epoch: int, seconds: float, age: float) -> None:
        if self.pause.hold(epoch, seconds, self._time.now, age_sec=age):
            process = self.process
            self._time.at(seconds + 1e-6, lambda: self._check_over(process, epoch))

    def _check_over(self, process: int, epoch: int) -> None:
        if process == self.process and self.pause.epoch == epoch:
            assert not self.pause.is_on(self._time.now), f"{self.uid} refuses past the deadline of epoch {epoch}"
