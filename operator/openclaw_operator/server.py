"""/healthz, /readyz and /metrics of the operator. Readiness does not depend on leadership: a standby is ready too."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Metrics:
    """Prometheus series of the operator."""

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
