"""How much of the last ten minutes submissions were paused, and whether one more hold fits. Pure.

Kept in the Lease, so that a crash-looping operator cannot forget it: seconds of hold per minute in which they ended.
A minute counts whole until it is ten minutes old; what is counted is therefore never less than what was held in any
ten minutes. At most `limit_sec` of them may be held: a tenth, or one hold of `pauseTimeoutSec` where that is longer.
"""

from datetime import datetime

from openclaw_core.leases import Hold, WeightSyncState
from openclaw_operator.weightsync.model import HOLD_SHARE_LIMIT, HOLD_SHARE_WINDOW_SEC

SHORTEST_SEC = 10
"""No hold is shorter: 5 s of it are left for its end. The least `pauseTimeoutSec`."""
SHORT_RETRY_SEC = 60.0
"""After a hold failed that had to be short, the next one waits this long."""
_MINUTE_SEC = 60
_TAKEOVER_SKEW_SEC = 5.0
"""Clocks of two operators may differ by this much when one reckons the other's hold."""

Held = tuple[tuple[int, float], ...]


def limit_sec(pause_timeout_sec: int) -> float:
    """Seconds of hold that any ten minutes may contain."""
    return max(HOLD_SHARE_LIMIT * HOLD_SHARE_WINDOW_SEC, float(pause_timeout_sec))


def used_sec(held: Held, wall: datetime) -> float:
    """Seconds held in the ten minutes before `wall`, rounded up to whole minutes at the far end."""
    return sum(seconds for _, seconds in _recent(held, wall))


def length(lease: WeightSyncState, pause_timeout_sec: int, wall: datetime) -> int | None:
    """Seconds the next hold may last; None while too little is left for one that could do its work.

    One that is shorter than `pauseTimeoutSec` says nothing against its version when it fails.
    """
    left = int(limit_sec(pause_timeout_sec) - used_sec(lease.held, wall))
    return min(left, pause_timeout_sec) if left >= SHORTEST_SEC else None


def added(held: Held, seconds: float, wall: datetime) -> Held:
    """The record after a hold of `seconds` that ends at `wall`."""
    minute = int(wall.timestamp() // _MINUTE_SEC)
    recent = dict(_recent(held, wall))
    recent[minute] = round(recent.get(minute, 0.0) + seconds, 3)
    return tuple(sorted(recent.items()))


def foreign_sec(hold: Hold, wall: datetime) -> float:
    """Length of a hold somebody else began, reckoned by wall clocks that may differ; at most the hold's own."""
    age = (wall - hold.acquired_at).total_seconds()
    return min(age + _TAKEOVER_SKEW_SEC, float(hold.duration_sec)) if age >= 0 else float(hold.duration_sec)


def _recent(held: Held, wall: datetime) -> Held:
    oldest = int((wall.timestamp() - HOLD_SHARE_WINDOW_SEC) // _MINUTE_SEC)
    return tuple((minute, seconds) for minute, seconds in held if minute >= oldest)
