"""One optimizer step: micro batches → gradient → clip → Adam, or nothing when a number is not finite.

Adam with β 0.9 / 0.95 and no weight decay: the settings the quickstart was measured with, and what small steps on a
pretrained model want (decay would pull a LoRA back to zero, a long second moment would remember a colder policy).
This module knows no gateway, no version numbers and no files.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from openclaw_core.config.policy_training import PolicyTraining
from openclaw_core.wire import Sample
from openclaw_trainer.batch import collate, split
from openclaw_trainer.policy import Policy
from openclaw_trainer.policy_loss import Outcome, micro_batch_loss

BETAS = (0.9, 0.95)
MICRO_BATCH_TOKENS = 4096
"""Padded tokens of one forward: bounds memory, does not change the result."""


@dataclass(frozen=True)
class StepResult:
    """What a step measured. `applied` False: a loss or gradient was not finite and the weights are untouched."""

    applied: bool
    loss: float
    grad_norm: float
    logprob_abs_diff: float
    logprob_abs_diff_fresh: float | None
    """Over samples of lag 0; None without one."""
    abs_diff_by_lag: dict[int, float]
    weight_mean: float
    clipped_share: float


class Learner:
    """Policy plus optimizer."""

    def __init__(self, policy: Policy, training: PolicyTraining) -> None:
        self.policy, self.training = policy, training
        if training.kl_coef > 0:
            policy.keep_reference()
        self.optimizer = torch.optim.AdamW(
            list(policy.trainable().values()), lr=training.learning_rate, betas=BETAS, weight_decay=0.0
        )

    def step(self, samples: Sequence[Sample], advantages: Sequence[float], lags: Sequence[int]) -> StepResult:
        """Train on `samples` once. Same length for all three; at least one sample."""
        outcomes: list[tuple[list[int], Outcome]] = []
        self.optimizer.zero_grad(set_to_none=True)
        for indices in split(samples, MICRO_BATCH_TOKENS):
            batch = collate(
                [samples[i] for i in indices],
                [advantages[i] for i in indices],
                [lags[i] for i in indices],
                self.policy.device,
            )
            outcome = micro_batch_loss(self.policy, batch, self.training, len(samples))
            outcome.loss.backward()  # type: ignore[no-untyped-call]  # torch declares no types here
            outcomes.append((indices, outcome))
        norm = self._clip()
        loss = sum(float(outcome.loss.detach()) for _, outcome in outcomes)
        applied = math.isfinite(loss) and math.isfinite(norm)
        if applied:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return _result(applied, loss, norm, lags, outcomes)

    def _clip(self) -> float:
        """Gradient norm before clipping; `maxGradNorm` 0 clips nothing."""
        bound = self.training.max_grad_norm or math.inf
        return float(torch.nn.utils.clip_grad_norm_(self.policy.trainable().values(), bound))


def _result(
    applied: bool, loss: float, norm: float, lags: Sequence[int], outcomes: list[tuple[list[int], Outcome]]
) -> StepResult:
    differences = {i: float(d) for indices, o in outcomes for i, d in zip(indices, o.abs_diff_B, strict=True)}
    by_lag = {lag: _mean([d for i, d in differences.items() if lags[i] == lag]) for lag in sorted(set(lags))}
    return StepResult(
        applied=applied,
        loss=loss,
        grad_norm=norm,
        logprob_abs_diff=_mean(list(differences.values())),
        logprob_abs_diff_fresh=by_lag.get(0),
        abs_diff_by_lag=by_lag,
        weight_mean=_mean([float(w) for _, o in outcomes for w in o.weight_mean_B]),
        clipped_share=_mean([float(c) for _, o in outcomes for c in o.clipped_share_B]),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
