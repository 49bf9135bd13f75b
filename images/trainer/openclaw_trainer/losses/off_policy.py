"""Corrections for samples of older versions: which policy is π_old, and how much each token counts.

| mode         | π_old   | weight w_t (no gradient)                                  |
| decoupled    | prox    | clamp(exp(log prox − log rollout), 0, 2)                  |
| mask         | prox    | 1 where 0.5 ≤ exp(log prox − log rollout) ≤ 2, else 0     |
| rolloutAsOld | rollout | 1                                                         |
| none         | prox    | 1                                                         |

The weight multiplies the loss; the token count of the mean stays the original one. Sources: decoupled PPO (Hilton et
al. 2021, arXiv:2110.00641; AReaL, arXiv:2505.24298), truncation at 2: slime's TIS.
"""

from typing import Literal

import torch
from torch import Tensor

Mode = Literal["decoupled", "mask", "rolloutAsOld", "none"]
_CAP = 2.0


def old_and_weight(mode: Mode, prox_B_T: Tensor, rollout_B_T: Tensor) -> tuple[Tensor, Tensor]:
    """(log π_old, w), both B T and without gradient."""
    prox, ones = prox_B_T.detach(), torch.ones_like(rollout_B_T)
    if mode == "rolloutAsOld":
        return rollout_B_T, ones
    if mode == "none":
        return prox, ones
    ratio = (prox - rollout_B_T).exp()
    if mode == "decoupled":
        return prox, ratio.clamp(0.0, _CAP)
    return prox, ((ratio >= 1.0 / _CAP) & (ratio <= _CAP)).to(rollout_B_T.dtype)
