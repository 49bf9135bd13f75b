"""Binary RL: every token of an answer gets the answer's advantage, A_t = r or r − running mean.

Source: OpenClaw-RL (2026), "Binary RL" with the judge's majority vote r in {−1, 0, 1}.
"""

from torch import Tensor


def binary_rl_advantage(advantage_B: Tensor, mask_B_T: Tensor) -> Tensor:
    """A_t = A of the sample on its tokens, 0 on padding; shape B T."""
    return advantage_B[:, None] * mask_B_T
