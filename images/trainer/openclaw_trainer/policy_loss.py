"""The loss of a micro batch: which terms, how they add up, what is measured on the way.

L = mean_samples mean_tokens ( w · L_clip + β · KL − c · H ). The three policies are *rollout* (the engine's logprobs),
*prox* = π_old (this trainer before the step) and *θ*. A step makes one pass over its batch, so the forward that is
differentiated also is the forward before the step: prox = θ without gradient, exactly.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from openclaw_core.config.policy_training import PolicyTraining
from openclaw_trainer import logprobs
from openclaw_trainer.batch import Batch
from openclaw_trainer.losses.binary_rl import binary_rl_advantage
from openclaw_trainer.losses.entropy import entropy_loss
from openclaw_trainer.losses.kl import low_var_kl
from openclaw_trainer.losses.off_policy import old_and_weight
from openclaw_trainer.losses.ppo_clip import ppo_clip
from openclaw_trainer.losses.reduction import sample_means, step_mean
from openclaw_trainer.policy import Policy


@dataclass(frozen=True)
class Outcome:
    """`loss` is this micro batch's share of the step's loss; the rest is for metrics, per sample."""

    loss: Tensor
    abs_diff_B: Tensor
    """Masked mean over tokens of |log π_old(trainer) − log π_rollout|."""
    weight_mean_B: Tensor
    clipped_share_B: Tensor


def micro_batch_loss(policy: Policy, batch: Batch, training: PolicyTraining, samples_in_step: int) -> Outcome:
    """Forward, loss terms and measurements of one micro batch."""
    with policy.autocast():
        scored = logprobs.forward(policy.model, batch, entropy=training.entropy_coef > 0)
    theta, prox, mask = scored.logprobs_B_T, scored.logprobs_B_T.detach(), batch.mask_B_T
    old, weight = old_and_weight(training.off_policy, prox, batch.rollout_B_T)
    advantage = binary_rl_advantage(batch.advantage_B, mask)
    terms = weight * ppo_clip(theta, old, advantage, low=training.clip_low, high=training.clip_high)
    if training.kl_coef > 0:
        terms = terms + training.kl_coef * low_var_kl(theta, _reference(policy, batch))
    if scored.entropy_B_T is not None:
        terms = terms + entropy_loss(scored.entropy_B_T, training.entropy_coef)
    ratio = (prox - old).exp()
    clipped = (ratio < 1.0 - training.clip_low) | (ratio > 1.0 + training.clip_high)
    return Outcome(
        loss=step_mean(terms, mask, samples_in_step),
        abs_diff_B=sample_means((prox - batch.rollout_B_T).abs(), mask),
        weight_mean_B=sample_means(weight, mask),
        clipped_share_B=sample_means(clipped.float(), mask),
    )


@torch.no_grad()
def _reference(policy: Policy, batch: Batch) -> Tensor:
    with policy.reference() as model, policy.autocast():
        return logprobs.forward(model, batch).logprobs_B_T
