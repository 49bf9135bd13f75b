"""Virtual time: what happens next, and a random source that decides how long things take."""

import heapq
import itertools
import random
from collections.abc import Callable


class Timeline:
    """Actions by time, in seconds. Equal times keep their order."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.random = random.Random(seed)
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def at(self, delay: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now + delay, next(self._order), action))

    def between(self, least: float, most: float) -> float:
        return least + (most - least) * self.random.random()

    def run(self, until: float) -> None:
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= until:
            self.now, _, action = pop(heap)
            action()
        self.now = until
