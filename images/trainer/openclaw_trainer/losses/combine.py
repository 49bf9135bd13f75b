"""Combined method: the judge's verdict on the whole answer, and the hint's word on each token.

A_t = w_rl · A + w_opd · (log π_T(a_t | s, hint) − log π_old(a_t | s)); the second term is 0 for a sample without a
hint, the first for one without a verdict (A = 0). Source: OpenClaw-RL (2026), weights 1 and 1.
"""

from torch import Tensor

from openclaw_trainer.losses.binary_rl import binary_rl_advantage
from openclaw_trainer.losses.opd import opd_advantage


def combined_advantage(
    advantage_B: Tensor,
    teacher_B_T: Tensor,
    old_B_T: Tensor,
    has_hint_B: Tensor,
    mask_B_T: Tensor,
    *,
    weight_rl: float = 1.0,
    weight_opd: float = 1.0,
) -> Tensor:
    """A_t, shape B T; `has_hint_B` is 1.0 or 0.0, and the teacher's values count only where it is 1."""
    hinted_B_T = mask_B_T * has_hint_B[:, None]
    distilled = opd_advantage(teacher_B_T, old_B_T, hinted_B_T)
    return weight_rl * binary_rl_advantage(advantage_B, mask_B_T) + weight_opd * distilled
