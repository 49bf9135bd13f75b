"""Entropy bonus: the loss falls where the policy stays open, L = −c · H.

H_t = −Σ_v p_v log p_v of the tempered distribution. Source: Williams & Peng 1991; coefficient 0 in OpenClaw-RL.
"""

from torch import Tensor


def entropy_loss(entropy_B_T: Tensor, coefficient: float) -> Tensor:
    """−c · H per token, shape B T."""
    return -coefficient * entropy_B_T
