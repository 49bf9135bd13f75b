"""Which samples went into which optimizer step, from the trainer's checkpoints, against the store's own rows. Pure.

With `checkpoint.everySteps: 1` each checkpoint names the ids of the step that made it, and step S+1 starts from the
weights of step S: an id in two checkpoints was trained twice, and a trained id in none was not trained at all.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass
class ConsumedSamples:
    by_step: dict[int, frozenset[int]] = field(default_factory=dict)
    rewritten: list[int] = field(default_factory=list)
    """Steps whose checkpoint was replaced by one with other samples."""

    def add(self, checkpoints: Mapping[int, Sequence[int]]) -> None:
        """Ids by step, as found on the volume now; older checkpoints may be gone from it."""
        for step, ids in checkpoints.items():
            if self.by_step.setdefault(step, frozenset(ids)) != frozenset(ids):
                self.rewritten.append(step)

    def newest_step(self) -> int:
        return max(self.by_step, default=0)

    def trained_twice(self) -> list[int]:
        steps_of = Counter(identity for ids in self.by_step.values() for identity in ids)
        return sorted(identity for identity, steps in steps_of.items() if steps > 1)

    def gaps(self) -> list[int]:
        """Steps that no checkpoint was seen of."""
        return [step for step in range(1, self.newest_step() + 1) if step not in self.by_step]

    def never_settled(self, trained: frozenset[int], newest_before: int) -> list[int]:
        """Consumed ids that the store does not call trained, though a later step had begun before it was read."""
        settled = (ids for step, ids in self.by_step.items() if step < newest_before)
        return sorted(frozenset().union(*settled) - trained)

    def never_consumed(self, trained: frozenset[int]) -> list[int]:
        """Ids that the store calls trained and no step had."""
        return sorted(trained - frozenset().union(*self.by_step.values()))
