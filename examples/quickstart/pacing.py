"""When to look at the held-out questions and when to stop. Pure.

The running reward only suggests when to look first: it is measured on questions that are trained on, and it is noisy.
The held-out rate decides. A look that found too little is soon followed by the next one, whatever the running reward
says by then: past what was wanted a small model pleases at the cost of truth.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from examples.quickstart.plots import smoothed

FIRST_LOOK_AT = 0.65
"""Liked share of the last batches. Below what is wanted of held-out questions: of what is trained on, users know some
answers better than the model ever will."""


class Move(Enum):
    WATCH = "watch"
    EXAMINE = "examine"
    STOP = "stop"


@dataclass(frozen=True)
class Pace:
    """Bounds of the learning: whichever comes first."""

    minutes: float
    max_updates: int = 40
    min_updates: int = 3
    updates_between_looks: int = 3

    def next_move(self, rates: Sequence[float], *, last_look: int, elapsed_sec: float) -> Move:
        """`rates` = liked share per update so far; `last_look` = updates there were at the last look (0: none)."""
        updates = len(rates)
        if elapsed_sec >= self.minutes * 60 or updates >= self.max_updates:
            return Move.STOP
        due = updates >= max(self.min_updates, last_look + self.updates_between_looks)
        return Move.EXAMINE if due and (last_look > 0 or smoothed(rates)[-1] >= FIRST_LOOK_AT) else Move.WATCH
