"""How far the policy that talks may run ahead of the policy that learns: one formula, one place.

η (`maxHeadOffPolicyness`) bounds the backlog: at most (η+1)·B turns (B = `rolloutBatchSize`) may be on their way
to the trainer. The stale filter (`staleFilterSteps`) bounds the lag of what is trained. The idea is AReaL's
staleness manager; its counter form deadlocks where many accepted turns never train, so ours counts the turns that
exist, which the store knows after any restart.
"""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field


class Backlog(BaseModel):
    """Turns on their way to the trainer, by where they are. All counts ≥ 0."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    generating: int = Field(0, ge=0)
    waiting: int = Field(0, ge=0)
    """Generated; waits for its next state (at most nextStateGraceSec) or for the judge."""
    queued: int = Field(0, ge=0)
    leased: int = Field(0, ge=0)
    unpublished: int = Field(0, ge=0)
    """Trained in a version that is not yet published."""

    def total(self) -> int:
        return self.generating + self.waiting + self.queued + self.leased + self.unpublished


def capacity(backlog: Backlog, *, max_head_off_policyness: int, rollout_batch_size: int, max_concurrent: int) -> int:
    """Turns that may still be admitted: min(maxConcurrent − generating, (η+1)·B − backlog). Can be ≤ 0.

    η=0, B=4, empty → 4; η=2, B=4, empty → 12.
    """
    budget = (max_head_off_policyness + 1) * rollout_batch_size
    return min(max_concurrent - backlog.generating, budget - backlog.total())


def lag(step_starts_from: int, span_versions: Sequence[int]) -> int:
    """Versions between the oldest span of a turn and the version the optimizer step starts from (≥ 0).

    Raises ValueError without spans: a turn of unknown version is dropped as `no_ids`, never trained.
    """
    if not span_versions:
        raise ValueError("a sample without version spans has no lag")
    return max(0, step_starts_from - min(span_versions))


def is_stale(sample_lag: int, stale_filter_steps: int) -> bool:
    """True when a sample of this lag is dropped(`stale`) instead of trained."""
    return sample_lag > stale_filter_steps
