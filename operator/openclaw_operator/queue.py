"""Work queue of training keys: each key at most once, failures back off per key, one worker at a time per key.

    watch events ──add──▶ due times by key ──get──▶ workers ──done(ok)──▶ forget the backoff
                            ▲                          └───done(failed)──▶ add again after 0.5·2^n ≤ 60 s

Bounded by the number of trainings. A key added while a worker has it runs once more afterwards.
"""

import asyncio
from typing import Generic, TypeVar

K = TypeVar("K")

BACKOFF_FIRST_SEC = 0.5
BACKOFF_MAX_SEC = 60.0
_CLOCK_GRAIN_SEC = 0.001
SPACING_SEC = 0.1
"""Least time between two runs of one key: a burst of pod events is one reconcile."""


class WorkQueue(Generic[K]):
    """Deduplicating delay queue on the loop's clock."""

    def __init__(self) -> None:
        self._due: dict[K, float] = {}
        self._running: set[K] = set()
        self._started: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._due)

    def lag_sec(self) -> float:
        """How long the longest waiting key has been due; 0 when none is."""
        now = asyncio.get_running_loop().time()
        return max(0.0, max((now - due for key, due in self._due.items() if key not in self._running), default=0.0))

    def add(self, key: K, delay_sec: float = 0.0) -> None:
        """Ask for a run of `key` no later than in `delay_sec` (but spaced from its last one)."""
        now = asyncio.get_running_loop().time()
        due = max(now + delay_sec, self._started.get(key, float("-inf")) + SPACING_SEC)
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            self._changed.set()

    async def get(self) -> K:
        """Wait for the next due key that no other worker has. Pair each with `done`."""
        while True:
            now = asyncio.get_running_loop().time()
            free = [(due, key) for key, due in self._due.items() if key not in self._running]
            if free:
                due, key = min(free, key=lambda pair: pair[0])
                if due <= now + _CLOCK_GRAIN_SEC:
                    del self._due[key]
                    self._running.add(key)
                    self._started[key] = now
                    return key
            await self._wait(min((due for due, _ in free), default=now + 60.0) - now)

    def done(self, key: K, *, failed: bool) -> float:
        """Give `key` back; after a failure it comes again by itself. Returns that delay in seconds (0 = none)."""
        self._running.discard(key)
        self._changed.set()
        if not failed:
            self._failures.pop(key, None)
            return 0.0
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        delay = min(BACKOFF_FIRST_SEC * 2.0**count, BACKOFF_MAX_SEC)
        self.add(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """The training is gone: no backoff, no pending run."""
        for table in (self._due, self._started, self._failures):
            table.pop(key, None)

    async def _wait(self, timeout: float) -> None:
        self._changed.clear()
        try:
            await asyncio.wait_for(self._changed.wait(), timeout=max(timeout, 0.0))
        except TimeoutError:
            return
