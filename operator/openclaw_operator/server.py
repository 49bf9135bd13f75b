"""/healthz, /readyz and /metrics of the operator. Readiness does not depend on leadership: a standby is ready too.

/healthz fails when the clock loop of a leading process has not ticked for a while; a loop that hangs answers nothing at
all, which the kubelet's probe notices by itself. A watch that died ends the process (`watchdog`).
"""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import generate_latest

from openclaw_operator.metrics import Metrics


def build_app(
    metrics: Metrics, *, collect: Callable[[], None], unhealthy: Callable[[], str | None] = lambda: None
) -> web.Application:
    """`collect` brings gauges up to date before they are read; `unhealthy` says what is wrong with the process."""

    async def ready(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def alive(_: web.Request) -> web.Response:
        fault = unhealthy()
        return web.Response(text=f"{fault or 'ok'}\n", status=500 if fault else 200)

    async def show(_: web.Request) -> web.Response:
        collect()
        return web.Response(body=generate_latest(metrics.registry), content_type="text/plain")

    app = web.Application()
    app.add_routes([web.get("/healthz", alive), web.get("/readyz", ready), web.get("/metrics", show)])
    return app
