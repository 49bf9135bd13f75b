"""From scores to advantages: the score itself, or the score minus a running mean of scores.

The mean is an exponential one over batches with a warm start: after n batches the newest weighs max(1/n, 0.1). The
present batch is part of it, so a first batch does not push down everything it holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

SLOWEST = 0.1
"""Weight of the newest batch once more than ten were seen."""


@dataclass(frozen=True)
class RunningMean:
    """State of the baseline; part of a checkpoint."""

    mean: float = 0.0
    batches: int = 0

    def including(self, scores: Sequence[float]) -> "RunningMean":
        """The state after one more batch; ValueError for an empty one."""
        if not scores:
            raise ValueError("a running mean needs at least one score")
        batches = self.batches + 1
        weight = max(1.0 / batches, SLOWEST)
        return RunningMean(self.mean + weight * (sum(scores) / len(scores) - self.mean), batches)


def advantages(
    kind: Literal["none", "runningMean"], scores: Sequence[float], baseline: RunningMean
) -> tuple[list[float], RunningMean]:
    """(A of each sample, baseline for the next batch)."""
    after = baseline.including(scores)
    offset = after.mean if kind == "runningMean" else 0.0
    return [score - offset for score in scores], after
