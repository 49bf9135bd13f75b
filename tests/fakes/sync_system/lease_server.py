"""The API server as far as the weight sync needs it: one Lease under resourceVersions, its watches, the target file."""

from collections.abc import Callable
from datetime import datetime, timedelta

from openclaw_core.leases import WeightSyncState, parse_weight_sync, render_weight_sync
from openclaw_operator.weightsync import model as m
from tests.fakes.sync_system.network import Network
from tests.fakes.sync_system.timeline import Timeline

Content = WeightSyncState | None
"""None: garbled."""


class LeaseServer:
    """`wrote` is called with every content an operator writes, before it takes effect."""

    def __init__(self, time: Timeline, network: Network) -> None:
        self._time, self._network = time, network
        self.content: Content = WeightSyncState()
        self.exists = True
        self.revision = 1
        self.history: list[tuple[float, Content]] = [(0.0, self.content)]
        self.watchers: list[Callable[[Content], None]] = []
        self.down_until = 0.0
        self.target: list[tuple[float, str]] = []
        self.tampered = False
        self.wrote: Callable[[WeightSyncState], None] = lambda _: None

    def down(self) -> bool:
        return self._time.now < self.down_until

    @property
    def state(self) -> WeightSyncState:
        return self.content or WeightSyncState()

    def read(self) -> m.Told:
        if self.down() or not self.exists:
            return m.LeaseFailed("down")
        return self._seen()

    def write(self, action: m.WriteLease) -> m.Told:
        if self.down() or not self.exists or action.resource_version != str(self.revision):
            return m.LeaseFailed("conflict")
        self.wrote(action.state)
        self.put(parse_weight_sync(render_weight_sync(action.state)))
        return self._seen()

    def put(self, content: Content) -> None:
        self.content, self.revision = content, self.revision + 1
        self.history.append((self._time.now, content))
        for watcher in self.watchers:
            watcher(content)

    def write_target(self, wanted: str) -> m.TargetWritten:
        if self.down():
            return m.TargetWritten(None)
        self.target.append((self._time.now, wanted))
        return m.TargetWritten(wanted)

    def mounted(self, age: float) -> str | None:
        """The target a kubelet mounts that is `age` seconds behind."""
        known = [wanted for moment, wanted in self.target if moment <= self._time.now - age]
        return known[-1] if known else None

    # ------------------------------------------------------------ somebody with kubectl

    def garble(self) -> None:
        self.tampered = True
        if self.exists:
            self.put(None)

    def delete(self, back_in: float) -> None:
        """The reconcile makes it again, empty."""
        self.tampered = True
        self.exists = False
        self.content = None
        self._time.at(back_in, self._make)

    def _make(self) -> None:
        if not self.exists:
            self.exists = True
            self.put(WeightSyncState())

    def put_back(self, age: float) -> None:
        """Somebody replaces it with an older content."""
        self.tampered = True
        older = [content for moment, content in self.history if moment <= self._time.now - age and content]
        if older and self.exists:
            self.put(older[-1])

    def held_spans(self) -> list[tuple[float, float]]:
        """(begin, end) of every hold, as anybody without a clock of his own would count it."""
        spans, begun, until, epoch = [], 0.0, 0.0, -1
        for moment, content in [*self.history, (self._time.now, None)]:
            hold = content.hold if content is not None else None
            if epoch >= 0 and (hold is None or hold.epoch != epoch):
                spans.append((begun, min(moment, until)))
                epoch = -1
            if hold is not None and epoch < 0:
                begun, until, epoch = moment, moment + hold.duration_sec, hold.epoch
        return spans

    def _seen(self) -> m.Told:
        version = str(self.revision)
        return m.LeaseGarbled("garbled", version) if self.content is None else m.LeaseSeen(self.content, version)


def wall(time: Timeline, skew: float) -> datetime:
    """What a clock that is `skew` seconds off shows."""
    return _START + timedelta(seconds=time.now + skew)


_START = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
