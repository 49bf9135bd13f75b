"""Health, metrics and state of the judge over HTTP. Reads the state, changes nothing."""

from aiohttp import web
from prometheus_client import generate_latest

from openclaw_judge.state import JudgingState

_STATE: web.AppKey[JudgingState] = web.AppKey("state", JudgingState)


def build_app(state: JudgingState) -> web.Application:
    """`/healthz` and `/readyz` answer while the process runs: a bad endpoint is a condition, not a dead pod."""
    app = web.Application()
    app[_STATE] = state
    app.add_routes(
        [
            web.get("/healthz", _ok),
            web.get("/readyz", _ok),
            web.get("/metrics", _metrics),
            web.get("/state", _state),
        ]
    )
    return app


async def _ok(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _metrics(request: web.Request) -> web.Response:
    return web.Response(body=generate_latest(request.app[_STATE].registry), content_type="text/plain")


async def _state(request: web.Request) -> web.Response:
    return web.Response(text=request.app[_STATE].snapshot().model_dump_json(), content_type="application/json")
