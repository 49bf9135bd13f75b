"""When submissions were paused, from the Lease's watch log; and which refusals fall outside. Pure.

A window begins when a new epoch's hold was written into Lease `<name>-weight-sync` and ends when the Lease is first
seen released (or the hold's duration is over). Clients' refusals come with the clients' own send and answer times.
Nothing here looks at a counter of the platform.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from openclaw_core.leases import WeightSyncState

SLACK_SEC = 0.5
"""A gateway hears of a hold or a release as late as our own watch does, and clocks of two pods differ a little."""


@dataclass(frozen=True)
class Window:
    """One pause. Unix seconds; `ended_at` None while it lasts, at most until `expires_at`."""

    epoch: int
    version: str | None
    began_at: float
    ended_at: float | None
    expires_at: float

    def milliseconds(self) -> float | None:
        return None if self.ended_at is None else round((self.ended_at - self.began_at) * 1000, 1)


@dataclass
class WindowLog:
    """Folds Lease states, in the order the watch brought them, into windows."""

    windows: list[Window] = field(default_factory=list)
    unseen_epochs: int = 0
    """Epochs that began and ended without the watch showing them (it was away)."""
    _epoch: int | None = None

    def observe(self, state: WeightSyncState, seen_at: float) -> None:
        if self._epoch is not None and state.epoch > self._epoch:
            self.unseen_epochs += state.epoch - self._epoch - (1 if state.hold else 0)
        open_window = self.windows[-1] if self.windows and self.windows[-1].ended_at is None else None
        if open_window is not None and (state.hold is None or state.epoch != open_window.epoch):
            self._close(min(seen_at, open_window.expires_at))
            open_window = None
        if state.hold is not None and open_window is None and state.epoch != self._last_epoch():
            # Written before we saw it: our first look may be late, and a busy watch brings hold and release at once.
            began = min(seen_at, state.hold.acquired_at.timestamp())
            expires = began + state.hold.duration_sec
            self.windows.append(Window(state.epoch, state.hold.pause_version, began, None, expires))
        self._epoch = max(state.epoch, self._epoch or 0)

    def is_open(self, now: float) -> bool:
        return bool(self.windows) and self.windows[-1].ended_at is None and now < self.windows[-1].expires_at

    def closed_milliseconds(self) -> list[float]:
        return [length for window in self.windows if (length := window.milliseconds()) is not None]

    def _last_epoch(self) -> int | None:
        return self.windows[-1].epoch if self.windows else None

    def _close(self, ended_at: float) -> None:
        self.windows.append(replace(self.windows.pop(), ended_at=ended_at))


Refusal = tuple[float, float, int, str]
"""(sent at, answered at, HTTP status, error code)."""


def outside(refusals: Iterable[Refusal], windows: Sequence[Window], slack_sec: float = SLACK_SEC) -> list[Refusal]:
    """The 503s whose time between sending and answer meets no window."""
    return [
        refusal
        for refusal in refusals
        if refusal[2] == 503 and not any(_meets(refusal, window, slack_sec) for window in windows)
    ]


def _meets(refusal: Refusal, window: Window, slack_sec: float) -> bool:
    sent_at, answered_at = refusal[:2]
    ended_at = window.expires_at if window.ended_at is None else window.ended_at
    return answered_at >= window.began_at - slack_sec and sent_at <= ended_at + slack_sec
