"""/healthz, /readyz and /metrics of the operator. Readiness does not depend on leadership: a standby is ready too."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from openclaw_core.status import TrainingStatus

_OF_TRAINING = ("namespace", "training")


class Metrics:
    """Prometheus series of the operator. Those of a training go when it goes: they are filled anew at each scrape."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.leading = Gauge("openclawrl_operator_leading", "1 while this process leads", registry=self.registry)
        self.passes = Counter(
            "openclawrl_operator_reconciles", "Reconciles by result", ["result"], registry=self.registry
        )
        self.seconds = Histogram(
            "openclawrl_operator_reconcile_seconds", "Seconds of a reconcile", registry=self.registry
        )
        self.queued = Gauge("openclawrl_operator_queue", "Trainings waiting for a reconcile", registry=self.registry)
        self.trainings = Gauge("openclawrl_operator_trainings", "Trainings known", registry=self.registry)
        self.writes = Gauge("openclawrl_operator_writes", "Writes sent since the start", registry=self.registry)
        self.conditions = Gauge(
            "openclawrl_training_condition",
            "1 where the condition is True",
            [*_OF_TRAINING, "condition"],
            registry=self.registry,
        )
        self.epoch = Gauge(
            "openclawrl_weight_sync_epoch", "Holds since the start", _OF_TRAINING, registry=self.registry
        )
        self.pause = Gauge(
            "openclawrl_weight_sync_pause_seconds", "Length of the last hold", _OF_TRAINING, registry=self.registry
        )

    def show(self, namespace: str, training: str, status: TrainingStatus) -> None:
        """Series of one training, from its status."""
        for condition in status.conditions or []:
            value = 1 if condition.status == "True" else 0
            self.conditions.labels(namespace, training, condition.type).set(value)
        last = status.weights.last_sync if status.weights is not None else None
        if last is not None:
            self.epoch.labels(namespace, training).set(last.epoch)
            self.pause.labels(namespace, training).set(last.pause_ms / 1000)

    def clear_trainings(self) -> None:
        for series in (self.conditions, self.epoch, self.pause):
            series.clear()


def build_app(metrics: Metrics, *, collect: Callable[[], None]) -> web.Application:
    """`collect` brings gauges up to date before they are read."""

    async def ok(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def show(_: web.Request) -> web.Response:
        collect()
        return web.Response(body=generate_latest(metrics.registry), content_type="text/plain")

    app = web.Application()
    app.add_routes([web.get("/healthz", ok), web.get("/readyz", ok), web.get("/metrics", show)])
    return app
