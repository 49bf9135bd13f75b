"""KL to the reference by the low-variance estimator k3.

d = log π_ref − log π_θ; k = exp(d) − 1 − d ≥ 0, clamped to ±10.
Source: Schulman, "Approximating KL divergence" (2020); clamp as in OpenClaw-RL / slime (`low_var_kl`).
"""

from torch import Tensor

_BOUND = 10.0


def low_var_kl(theta_B_T: Tensor, reference_B_T: Tensor) -> Tensor:
    """k3 per token, shape B T. `reference` carries no gradient."""
    difference = (reference_B_T.detach() - theta_B_T).clamp(-20.0, 20.0)
    return (difference.exp() - 1.0 - difference).clamp(-_BOUND, _BOUND)
