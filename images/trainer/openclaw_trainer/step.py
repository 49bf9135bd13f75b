"""One optimizer step: micro batches → gradient → clip → Adam, or nothing when a number is not finite.

Adam with β 0.9 / 0.95 and no weight decay: the settings the quickstart was measured with, and what small steps on a
pretrained model want (decay would pull a LoRA back to zero, a long second moment would remember a colder policy).
This module knows no gateway, no version numbers and no files.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from openclaw_core.config.policy_training import PolicyTraining
from openclaw_core.wire import Sample
from openclaw_trainer import sharding, snapshot
from openclaw_trainer.batch import collate, split, tokens
from openclaw_trainer.policy import Policy
from openclaw_trainer.policy_loss import Outcome, micro_batch_loss
from openclaw_trainer.snapshot import Snapshot
from openclaw_trainer.world import World

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


@dataclass(frozen=True)
class Measured:
    """What one sample's forward measured, by its index in the step's batch."""

    index: int
    abs_diff: float
    weight: float
    clipped: float


class Learner:
    """Policy plus optimizer on one rank. Every method is collective when `world` has several."""

    def __init__(self, policy: Policy, training: PolicyTraining, world: World | None = None) -> None:
        self.policy, self.training, self.world = policy, training, world or World()
        if training.kl_coef > 0:
            policy.keep_reference()
        self.optimizer = torch.optim.AdamW(
            list(policy.trainable().values()), lr=training.learning_rate, betas=BETAS, weight_decay=0.0
        )

    def step(self, samples: Sequence[Sample], advantages: Sequence[float], lags: Sequence[int]) -> StepResult:
        """Train on `samples` once. Same length for all three; at least one sample."""
        self.optimizer.zero_grad(set_to_none=True)
        loss, measured = 0.0, list[Measured]()
        for indices in rank_share(samples, self.world):
            batch = collate(
                [samples[i] for i in indices or [0]],
                [advantages[i] for i in indices or [0]],
                [lags[i] for i in indices or [0]],
                self.policy.device,
            )
            outcome = micro_batch_loss(self.policy, batch, self.training, len(samples))
            # FSDP averages gradients over the ranks; the loss is a sum over them. A rank without samples left still
            # takes part in the forward and backward of the others, and adds nothing.
            share = outcome.loss * (self.world.size if indices else 0.0)
            share.backward()  # type: ignore[no-untyped-call]  # torch declares no types here
            if indices:
                loss += float(outcome.loss.detach())
                measured += _measured(indices, outcome)
        loss = sum(self.world.gathered(loss))
        measured = [one for part in self.world.gathered(measured) for one in part]
        norm = self._clip()
        applied = math.isfinite(loss) and math.isfinite(norm)
        if applied:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return _result(applied, loss, norm, lags, measured)

    def export(self) -> dict[str, Tensor]:
        """The weights engines serve."""
        return self.policy.export()

    def snapshot(self) -> Snapshot:
        """What a checkpoint keeps."""
        return snapshot.take(self.policy, self.optimizer)

    def restore(self, saved: Snapshot) -> None:
        """Go on from a checkpoint's snapshot."""
        snapshot.put_back(self.policy, self.optimizer, saved)

    def idle(self) -> None:
        """Nothing to do this poll."""

    def _clip(self) -> float:
        """Gradient norm over all ranks before clipping; `maxGradNorm` 0 clips nothing."""
        bound = self.training.max_grad_norm or math.inf
        norm = torch.nn.utils.clip_grad_norm_(self.policy.trainable().values(), bound)
        return float(sharding.whole(norm))


def rank_share(samples: Sequence[Sample], world: World) -> list[list[int]]:
    """Micro batches of this rank: indices into `samples`. Padded with empty ones to the same count on every rank."""
    order = sorted(range(len(samples)), key=lambda i: (-tokens(samples[i]), i))
    shares = [order[rank :: world.size] for rank in range(world.size)]
    plans = [
        [[share[i] for i in group] for group in split([samples[i] for i in share], MICRO_BATCH_TOKENS)]
        for share in shares
    ]
    rounds = max(len(plan) for plan in plans)
    mine = plans[world.rank]
    return mine + [[] for _ in range(rounds - len(mine))]


def _measured(indices: list[int], outcome: Outcome) -> list[Measured]:
    columns = (outcome.abs_diff_B.tolist(), outcome.weight_mean_B.tolist(), outcome.clipped_share_B.tolist())
    return [Measured(*row) for row in zip(indices, *columns, strict=True)]


def _result(applied: bool, loss: float, norm: float, lags: Sequence[int], measured: list[Measured]) -> StepResult:
    by_lag = {lag: _mean([one.abs_diff for one in measured if lags[one.index] == lag]) for lag in sorted(set(lags))}
    return StepResult(
        applied=applied,
        loss=loss,
        grad_norm=norm,
        logprob_abs_diff=_mean([one.abs_diff for one in measured]),
        logprob_abs_diff_fresh=by_lag.get(0),
        abs_diff_by_lag=by_lag,
        weight_mean=_mean([one.weight for one in measured]),
        clipped_share=_mean([one.clipped for one in measured]),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
