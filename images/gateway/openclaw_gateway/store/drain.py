"""How fast places in the backlog come free, and so when a refused client should come again. Pure.

A place comes free when a turn is trained or dropped, or when its grace runs out; what came free between two looks is
what was recorded since, less what the backlog grew by. It counts every gateway's turns, for the store does.
"""

import math
from collections import deque
from dataclasses import dataclass

WINDOW_SEC = 300.0
LONGEST_SEC = 60
"""openai-python ignores a Retry-After above 120 s and then does not try again."""
_UNKNOWN_SEC = 2


@dataclass(frozen=True)
class Occupancy:
    """The backlog at one moment."""

    recorded: int
    """Turns ever recorded."""
    places: int
    """Turns that take a place now."""


class Drain:
    """Tell it the occupancy every few seconds and each refusal; it answers in whole seconds."""

    def __init__(self) -> None:
        self._last: Occupancy | None = None
        self._since = 0.0
        self._freed: deque[tuple[float, int]] = deque()
        self._refused = 0

    def observe(self, now: float, occupancy: Occupancy) -> None:
        if self._last is None:
            self._since = now
        else:
            freed = (occupancy.recorded - self._last.recorded) - (occupancy.places - self._last.places)
            if freed > 0:
                self._freed.append((now, freed))
                self._refused = 0
        self._last = occupancy
        while self._freed and self._freed[0][0] < now - WINDOW_SEC:
            self._freed.popleft()

    def refuse(self, now: float) -> int:
        """Seconds until a place is likely free for this client, who comes behind those refused since the last one.

        Trainers free a batch at a time: nothing is free before the next one, and what it frees goes round in order.
        """
        self._refused += 1
        seen_sec = min(WINDOW_SEC, now - self._since) if self._last is not None else 0.0
        if not self._freed:
            return LONGEST_SEC if seen_sec >= LONGEST_SEC else _UNKNOWN_SEC
        many = sum(freed for _, freed in self._freed)
        gap_sec = max(seen_sec, 1.0) / len(self._freed)
        next_sec = max(0.0, self._freed[-1][0] + gap_sec - now)
        batches_before = (self._refused - 1) * len(self._freed) // many
        return max(1, min(LONGEST_SEC, math.ceil(next_sec + batches_before * gap_sec)))
