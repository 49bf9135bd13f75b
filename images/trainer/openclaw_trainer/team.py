"""The lead's learner and its followers: rank 0 says what to do, every rank does it.

    rank 0   loop ──▶ Team.step / export / snapshot / restore ──broadcast──▶ all ranks: Learner, same call
    rank n   follow(): receive ▶ do ▶ receive …                    `idle` once a poll keeps the group's timeout away

With one process there is nobody to tell and a Team is its Learner.
"""

import logging
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from openclaw_core.wire import Sample
from openclaw_trainer.snapshot import Snapshot
from openclaw_trainer.step import Learner, StepResult
from openclaw_trainer.world import World

log = logging.getLogger(__name__)


class Team:
    """What the loop trains with. Lead only; every method returns when all ranks are through."""

    def __init__(self, learner: Learner, world: World) -> None:
        self._learner, self._world = learner, world

    def step(self, samples: Sequence[Sample], advantages: Sequence[float], lags: Sequence[int]) -> StepResult:
        result: StepResult = self._all_do("step", samples, advantages, lags)
        return result

    def export(self) -> dict[str, Tensor]:
        weights: dict[str, Tensor] = self._all_do("export")
        return weights

    def snapshot(self) -> Snapshot:
        taken: Snapshot = self._all_do("snapshot")
        return taken

    def restore(self, saved: Snapshot) -> None:
        self._all_do("restore", saved)

    def idle(self) -> None:
        """Tell the followers that the lead lives."""
        self._all_do("idle")

    def _all_do(self, verb: str, *arguments: Any) -> Any:
        self._world.from_lead((verb, arguments))
        return getattr(self._learner, verb)(*arguments)


def follow(learner: Learner, world: World) -> None:
    """The life of every other rank; ends with the process group."""
    while True:
        call: tuple[str, tuple[Any, ...]] = world.from_lead(None)
        verb, arguments = call
        getattr(learner, verb)(*arguments)
