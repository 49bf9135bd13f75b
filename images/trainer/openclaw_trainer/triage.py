"""What becomes of each leased sample before a step: trained, dropped with a reason, or acked because it was already.

Pure. `stale`: older than `staleFilterSteps` versions. `too_long`: more than `maxSequenceTokens`. `malformed`: the
engine's numbers do not fit together; no gateway of ours sends that, and one such sample must not stop the trainer.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from openclaw_core import staleness
from openclaw_core.config.policy_training import PolicyTraining
from openclaw_core.versions import VersionFormatError
from openclaw_core.wire import Sample
from openclaw_trainer import batch


@dataclass(frozen=True)
class Triage:
    """`kept` and `lags` have the same length; every id of the batch is in exactly one place."""

    kept: list[Sample] = field(default_factory=list)
    lags: list[int] = field(default_factory=list)
    dropped: dict[str, list[int]] = field(default_factory=dict)
    consumed: list[int] = field(default_factory=list)
    """Trained into the present weights before a restart, but leased again: to be acked, not trained twice."""


def triage(
    samples: Sequence[Sample], *, step_starts_from: int, training: PolicyTraining, consumed: Collection[int]
) -> Triage:
    result = Triage()
    for sample in samples:
        if sample.id in consumed:
            result.consumed.append(sample.id)
            continue
        reason, lag = _verdict(sample, step_starts_from, training)
        if reason:
            result.dropped.setdefault(reason, []).append(sample.id)
        else:
            result.kept.append(sample)
            result.lags.append(lag)
    return result


def _verdict(sample: Sample, step_starts_from: int, training: PolicyTraining) -> tuple[str, int]:
    """(drop reason or "", lag)."""
    if not _well_formed(sample):
        return "malformed", 0
    try:
        lag = batch.lag(sample, step_starts_from)
    except (ValueError, VersionFormatError):
        return "malformed", 0
    if batch.tokens(sample) > training.max_sequence_tokens:
        return "too_long", lag
    return ("stale" if staleness.is_stale(lag, training.stale_filter_steps) else ""), lag


def _well_formed(sample: Sample) -> bool:
    lengths = len(sample.output_ids) == len(sample.rollout_logprobs) > 0 < len(sample.prompt_ids)
    return lengths and all(map(math.isfinite, sample.rollout_logprobs)) and sample.sampling.temperature >= 0
