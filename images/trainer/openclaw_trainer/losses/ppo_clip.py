"""PPO's clipped surrogate with separate bounds ("clip higher").

L_t = max(−ρ_t A_t, −clip(ρ_t, 1 − ε_low, 1 + ε_high) A_t), ρ_t = exp(log π_θ − log π_old).
Sources: Schulman et al. 2017 (arXiv:1707.06347); asymmetric bounds: DAPO (arXiv:2503.14476), OpenClaw-RL 0.2 / 0.28.
"""

import torch
from torch import Tensor

_MAX_LOG_RATIO = 20.0
"""exp(20) ≈ 5e8: keeps a ratio finite where a token's probability collapsed."""


def ppo_clip(theta_B_T: Tensor, old_B_T: Tensor, advantage_B_T: Tensor, *, low: float, high: float) -> Tensor:
    """Loss per token, shape B T. `old` carries no gradient."""
    ratio = (theta_B_T - old_B_T.detach()).clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO).exp()
    clipped = ratio.clamp(1.0 - low, 1.0 + high)
    return torch.maximum(-ratio * advantage_B_T, -clipped * advantage_B_T)
