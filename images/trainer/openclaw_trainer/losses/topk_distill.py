"""Top-k distillation: reverse KL to a teacher over the tokens it finds likeliest, K of them, and one bin for the rest.

S = (log π_θ(v_1), …, log π_θ(v_K), log(1 − Σ π_θ(v_k))), T likewise for the teacher; L_t = Σ_{K+1} exp(S) · (S − T).
The gradient flows through S alone. Rounding may make a sum of probabilities reach 1: its logarithm is kept below
−1e-7, so that the rest stays a number. Source: OpenClaw-RL (2026), K = 50.
"""

import torch
from torch import Tensor

_NEVER_ALL = -1e-7
"""Largest log of the K tokens' summed probability."""


def topk_distill_loss(student_B_T_K: Tensor, teacher_B_T_K: Tensor) -> Tensor:
    """Loss per token, shape B T, from both policies' logprobs of the teacher's K tokens; 0 where they agree."""
    student, teacher = _with_rest(student_B_T_K), _with_rest(teacher_B_T_K.detach())
    return (student.exp() * (student - teacher)).sum(-1)


def _with_rest(logprobs_B_T_K: Tensor) -> Tensor:
    """K + 1 bins: the last holds what the K tokens leave over."""
    listed = torch.logsumexp(logprobs_B_T_K, dim=-1, keepdim=True).clamp(max=_NEVER_ALL)
    rest = torch.log(-torch.expm1(listed))
    return torch.cat([logprobs_B_T_K, rest], dim=-1)
