"""On-policy distillation: each token's advantage is how much likelier a teacher with the hint finds it.

A_t = log π_T(a_t | s, hint) − log π_old(a_t | s), from the tokens the policy sampled itself. The teacher is the policy
before the step, given the judge's hint in its context; no gradient flows through either term.
Source: OpenClaw-RL (2026), "On-Policy Distillation"; the idea is Agarwal et al. 2024 (arXiv:2306.13649).
"""

from torch import Tensor


def opd_advantage(teacher_B_T: Tensor, old_B_T: Tensor, mask_B_T: Tensor) -> Tensor:
    """A_t on answer tokens, 0 on padding; shape B T. Values on padding may be anything, NaN too."""
    difference = teacher_B_T.detach() - old_B_T.detach()
    return difference.masked_fill(mask_B_T == 0, 0.0)
