"""Prometheus series of the operator. Those of a training go when it goes: they are filled anew at each scrape."""

import asyncio
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from openclaw_core.kube import KubeError
from openclaw_core.status import Rollout, TrainingStatus

_OF_TRAINING = ("namespace", "training")
_TRUTH = {"True": 1, "False": 0}
UNKNOWN = -1
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Every series of one operator process."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.leading = Gauge("openclawrl_operator_leading", "1 while this process leads", registry=registry)
        self.passes = Counter("openclawrl_operator_reconciles", "Reconciles by result", ["result"], registry=registry)
        self.errors = Counter(
            "openclawrl_operator_reconcile_errors", "Failed reconciles by kind of error", ["kind"], registry=registry
        )
        self.seconds = Histogram(
            "openclawrl_operator_reconcile_seconds", "Seconds of a reconcile", buckets=_SECONDS, registry=registry
        )
        self.queued = Gauge("openclawrl_operator_queue", "Trainings waiting for a reconcile", registry=registry)
        self.lag = Gauge(
            "openclawrl_operator_queue_lag_seconds",
            "How long the longest waiting training has been due for a reconcile",
            registry=registry,
        )
        self.trainings = Gauge("openclawrl_operator_trainings", "Trainings known", registry=registry)
        self.writes = Gauge(
            "openclawrl_operator_writes", "Writes sent since the start by kind of object", ["kind"], registry=registry
        )
        self.info = Gauge(
            "openclawrl_training_info",
            "1 for each training",
            [*_OF_TRAINING, "uid", "phase", "model", "method", "weights"],
            registry=registry,
        )
        self.conditions = Gauge(
            "openclawrl_training_condition",
            "1 where the condition is True, 0 where False, -1 where Unknown",
            [*_OF_TRAINING, "condition"],
            registry=registry,
        )
        self.epoch = Gauge("openclawrl_weight_sync_epoch", "Holds since the start", _OF_TRAINING, registry=registry)
        self.pause = Gauge(
            "openclawrl_weight_sync_pause_seconds", "Length of the last hold", _OF_TRAINING, registry=registry
        )
        self.missing_acks = Gauge(
            "openclawrl_weight_sync_missing_acks",
            "Gateways that did not confirm the last hold in time",
            _OF_TRAINING,
            registry=registry,
        )
        self.rollout_turns = Gauge(
            "openclawrl_rollout_turns",
            "Turns judged since the canary of now, or the last, began",
            [*_OF_TRAINING, "side"],
            registry=registry,
        )
        self.rollout_score = Gauge(
            "openclawrl_rollout_score_mean",
            "Mean score of those turns",
            [*_OF_TRAINING, "side"],
            registry=registry,
        )
        self.rollout_state = Gauge(
            "openclawrl_rollout_state",
            "1 for the state of the canary of now, or of the last",
            [*_OF_TRAINING, "state"],
            registry=registry,
        )

    def passed(self, seconds: float, error: BaseException | None) -> None:
        """Count one reconcile."""
        self.passes.labels("ok" if error is None else "failed").inc()
        self.seconds.observe(seconds)
        if error is not None:
            self.errors.labels(kind_of(error)).inc()

    def wrote(self, writes: Mapping[str, int]) -> None:
        for kind, count in writes.items():
            self.writes.labels(kind).set(count)

    def show(
        self, namespace: str, training: str, status: TrainingStatus, *, uid: str = "", model: str = "", method: str = ""
    ) -> None:
        """Series of one training, from its status."""
        weights = status.weights
        serving = weights.serving if weights is not None else None
        self.info.labels(namespace, training, uid, status.phase or "", model, method, serving or "").set(1)
        for condition in status.conditions or []:
            value = _TRUTH.get(condition.status, UNKNOWN)
            self.conditions.labels(namespace, training, condition.type).set(value)
        last = weights.last_sync if weights is not None else None
        if last is not None:
            self.epoch.labels(namespace, training).set(last.epoch)
            self.pause.labels(namespace, training).set(last.pause_ms / 1000)
            self.missing_acks.labels(namespace, training).set(last.missing_acks)

        if weights is not None and weights.rollout is not None:
            self._show_rollout(namespace, training, weights.rollout)

    def _show_rollout(self, namespace: str, training: str, rollout: Rollout) -> None:
        self.rollout_state.labels(namespace, training, rollout.state).set(1)
        for name, side in (("canary", rollout.canary), ("stable", rollout.stable)):
            self.rollout_turns.labels(namespace, training, name).set(side.turns)
            if side.score_mean is not None:
                self.rollout_score.labels(namespace, training, name).set(side.score_mean)

    def clear_trainings(self) -> None:
        of_rollouts = (self.rollout_turns, self.rollout_score, self.rollout_state)
        of_syncs = (self.epoch, self.pause, self.missing_acks)
        for series in (self.info, self.conditions, *of_syncs, *of_rollouts):
            series.clear()


def kind_of(error: BaseException) -> str:
    """A short, bounded word for an error: the API server's reason, a timeout, or the exception's name."""
    if isinstance(error, KubeError):
        return error.reason or str(error.status)
    if isinstance(error, asyncio.TimeoutError):
        return "Timeout"
    return type(error).__name__
