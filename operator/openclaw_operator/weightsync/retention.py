"""Which versions the trainer may delete: none that an engine serves, loads, or may still find as its target.

A kubelet may mount a target that is a minute old, so what was the target lately is kept. What was the target before
this process started is not remembered: for that long only what the Lease released already stays released.
"""

from collections import deque
from collections.abc import Iterable

from openclaw_core.leases import Published
from openclaw_operator.weightsync import target as targets
from openclaw_operator.weightsync.model import KEEP_RECENT_SEC


class Retention:
    """Targets of the last two minutes. Times are monotonic seconds."""

    def __init__(self, started_at: float) -> None:
        self._started_at = started_at
        self._recent: deque[tuple[float, str]] = deque()

    def remember(self, versions: Iterable[str | None], now: float) -> None:
        self._recent += [(now, version) for version in versions if version]

    def releasable(
        self, published: Published, in_use: Iterable[str | None], released: tuple[int, ...], now: float
    ) -> tuple[int, ...]:
        """Numbers the trainer may delete, given those released already."""
        while self._recent and now - self._recent[0][0] > KEEP_RECENT_SEC:
            self._recent.popleft()
        wanted = targets.releasable(published, [*in_use, *(version for _, version in self._recent)])
        if now - self._started_at >= KEEP_RECENT_SEC:
            return wanted
        known = set(released)
        return tuple(number for number in wanted if number in known)
