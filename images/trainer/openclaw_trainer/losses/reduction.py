"""How per-token values become one number: mean over a sample's tokens, then mean over the samples of the step.

Source: OpenClaw-RL / slime, `sum(x·mask) / max(sum mask, 1)` per sample; a long answer weighs as much as a short one.
"""

from torch import Tensor


def sample_means(values_B_T: Tensor, mask_B_T: Tensor) -> Tensor:
    """Σ_t x·mask / max(Σ_t mask, 1), shape B. NaN or inf on padding does not leak."""
    kept = values_B_T.masked_fill(mask_B_T == 0, 0.0)
    return kept.sum(1) / mask_B_T.sum(1).clamp(min=1.0)


def step_mean(values_B_T: Tensor, mask_B_T: Tensor, samples_in_step: int) -> Tensor:
    """This micro batch's share of the mean over all samples of the step: micro batches add up."""
    return sample_means(values_B_T, mask_B_T).sum() / samples_in_step
