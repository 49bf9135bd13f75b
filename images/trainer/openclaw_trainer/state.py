"""What the trainer says of itself: wire.TrainerState for status and demo, Prometheus metrics for everybody else."""

import dataclasses
from collections import deque
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from openclaw_core.versions import BASE
from openclaw_core.wire import TrainerState, Update
from openclaw_trainer.step import StepResult

Phase = Literal["starting", "waiting_for_model", "waiting", "training", "publishing", "failed"]
_LAGS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 32)


@dataclasses.dataclass
class Numbers:
    """The scalar part of TrainerState, changed by the loop."""

    phase: Phase = "starting"
    step: int = 0
    version: str = str(BASE)
    trainer_epoch: int = 0
    zero_advantage_batches: int = 0
    skipped_nan: int = 0
    error: str | None = None


class State:
    """Written by the loop, read by the server; both on one event loop, so there is no lock."""

    def __init__(self) -> None:
        self.numbers = Numbers()
        self.updates: deque[Update] = deque(maxlen=1000)
        self.registry = CollectorRegistry()
        self._samples = Counter("openclawrl_trainer_samples", "Samples by outcome", ["outcome"], registry=self.registry)
        self._batches = Counter("openclawrl_trainer_batches", "Batches by outcome", ["outcome"], registry=self.registry)
        self._gauges = {name: Gauge(f"openclawrl_{name}", text, registry=self.registry) for name, text in _GAUGES}
        self._by_lag = Gauge(
            "openclawrl_train_rollout_logprob_abs_diff_by_lag",
            "Mean |log prox - log rollout| of the last step, by lag",
            ["lag"],
            registry=self.registry,
        )
        self._lag = Histogram(
            "openclawrl_train_lag_versions", "Lag of trained samples", buckets=_LAGS, registry=self.registry
        )
        self._seconds = Histogram("openclawrl_trainer_step_seconds", "Lease to ack of a step", registry=self.registry)

    def waits_for_model(self, words: str | None) -> None:
        """Nothing can be loaded yet, because of `words`; None: loading begins."""
        self.numbers.phase = "waiting_for_model" if words else "starting"
        self.numbers.error = words

    def snapshot(self) -> TrainerState:
        return TrainerState(**dataclasses.asdict(self.numbers), updates=list(self.updates))

    def metrics(self) -> bytes:
        return generate_latest(self.registry)

    def count_samples(self, outcome: str, count: int) -> None:
        """Outcome: trained, zero_advantage, already_trained, or a drop reason."""
        self._samples.labels(outcome).inc(count)

    def count_batch(self, outcome: Literal["trained", "zero_advantage", "nan", "empty"]) -> None:
        self._batches.labels(outcome).inc()
        self.numbers.zero_advantage_batches += outcome == "zero_advantage"
        self.numbers.skipped_nan += outcome == "nan"

    def record(self, update: Update, result: StepResult, lags: list[int]) -> None:
        """One optimizer step that was published."""
        self.updates.append(update)
        values = {
            "train_step": update.step,
            "train_reward_mean": update.reward_mean,
            "train_loss": update.loss,
            "train_grad_norm": update.grad_norm,
            "train_rollout_logprob_abs_diff": update.logprob_abs_diff,
            "train_off_policy_weight_mean": result.weight_mean,
            "train_clipped_share": result.clipped_share,
        }
        for name, value in values.items():
            self._gauges[name].set(value)
        self._by_lag.clear()
        for lag, difference in result.abs_diff_by_lag.items():
            self._by_lag.labels(str(lag)).set(difference)
        for lag in lags:
            self._lag.observe(lag)
        self._seconds.observe(update.seconds)


_GAUGES = (
    ("train_step", "Optimizer steps done"),
    ("train_reward_mean", "Mean score of the last step's samples"),
    ("train_loss", "Loss of the last step"),
    ("train_grad_norm", "Gradient norm of the last step before clipping"),
    ("train_rollout_logprob_abs_diff", "Mean |log prox - log rollout| of the last step"),
    ("train_off_policy_weight_mean", "Mean off-policy weight of the last step"),
    ("train_clipped_share", "Share of tokens whose ratio lies outside the PPO clip"),
)
