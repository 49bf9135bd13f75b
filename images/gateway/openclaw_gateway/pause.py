"""When submissions are paused: holds seen, their expiry on the monotonic clock, releases. Pure.

Rules, so that skewed clocks, a dead operator or a lost API server can only fail open:
- A hold counts from first sight of its epoch, once; seeing it again extends nothing.
- At first sight a hold that is long past is ignored: what is left of it is at most its length, less its age beyond
  the clock skew we allow for.
- An epoch is never reused: whatever speaks of an older one than the newest seen is stale news.
"""

import statistics
from collections import deque
from dataclasses import dataclass

from openclaw_core.leases import Canary

CLOCK_SKEW_SEC = 5.0
_REMEMBERED = 5
_UNKNOWN_SEC = 0.5
"""What a hold takes, or takes still, of which nothing better is known."""
_LONGEST_USUAL_SEC = 2.0
"""Windows up to this long fail no request of a stock client."""
_AFTER_SEC, _SPREAD_SEC = 0.1, 0.25
"""Between a hold's expected end and the return of the first and the last of those it refused."""
_LONGEST_WAIT_SEC = 120.0
"""openai-python does not wait longer."""


@dataclass(frozen=True)
class _Hold:
    epoch: int
    began_at: float
    ends_at: float


class Pause:
    """State of one gateway. All times are the caller's monotonic clock, in seconds."""

    def __init__(self) -> None:
        self.epoch = 0
        """Newest epoch seen."""
        self.serving_version: str | None = None
        """Version the operator says the fleet serves."""
        self.canary: Canary | None = None
        """Version that some engines serve beside it."""
        self._hold: _Hold | None = None
        self._released = -1
        self._lengths: deque[float] = deque(maxlen=_REMEMBERED)

    def hold(self, epoch: int, duration_sec: float, now: float, *, age_sec: float = 0.0) -> bool:
        """A hold was seen; `age_sec` by the wall clock, 0 when told directly. True when it began a pause."""
        if epoch <= self._released or epoch < self.epoch or (self._hold is not None and epoch == self._hold.epoch):
            return False
        left = duration_sec - max(0.0, age_sec - CLOCK_SKEW_SEC)
        self.epoch = epoch
        if left <= 0:
            self._released = epoch
            return False
        self._hold = _Hold(epoch, now, now + min(left, duration_sec))
        return True

    def version_for(self, session: str) -> str | None:
        """Version that should answer a session: the canary's for its share of them, else the one the fleet serves."""
        if self.canary is not None and self.canary.takes(session):
            return self.canary.version
        return self.serving_version

    def release(self, epoch: int, serving_version: str | None, now: float, canary: Canary | None = None) -> bool:
        """The hold of `epoch` (and every older one) is over. True when that ended a pause."""
        if epoch < self.epoch:
            return False
        self.epoch, self._released = epoch, epoch
        self.serving_version, self.canary = serving_version or self.serving_version, canary
        ended = self._hold
        self._hold = None
        if ended is not None and now < ended.ends_at:
            self._lengths.append(now - ended.began_at)
            return True
        return False

    def remaining(self, now: float) -> float:
        """Seconds of pause left at most; 0 when submissions run."""
        return max(0.0, self._hold.ends_at - now) if self._hold is not None else 0.0

    def is_on(self, now: float) -> bool:
        return self.remaining(now) > 0

    def retry_after(self, now: float, retries: int = 0) -> float:
        """Seconds a client should wait that came `retries` times before: until the hold is over, as recent ones went.

        At first to the usual end. Stock clients come back twice, so the last time they are sent to the end of the
        longest, and of a window of two seconds. Those who came late come back late, lest all come at once.
        """
        if self._hold is None:
            return _UNKNOWN_SEC
        recent = self._lengths or [_UNKNOWN_SEC]
        lasting = max(*recent, _LONGEST_USUAL_SEC) if retries else statistics.median(recent)
        elapsed = now - self._hold.began_at
        expected = lasting - elapsed if elapsed < lasting else max(_UNKNOWN_SEC, elapsed / 2)
        spread = _SPREAD_SEC * (elapsed / lasting if elapsed < lasting else 1.0)
        return min(_AFTER_SEC + spread + min(self.remaining(now), expected), _LONGEST_WAIT_SEC)
