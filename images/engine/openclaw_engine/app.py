"""HTTP edge of the sync agent: probes open, orders behind the agent's bearer token."""

import hmac
from typing import TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client import generate_latest
from pydantic import BaseModel, ValidationError

from openclaw_core.wire import Prepare, Retain, Sync
from openclaw_engine.agent import Agent
from openclaw_engine.machine import RefusedError
from openclaw_engine.metrics import Metrics

Model = TypeVar("Model", bound=BaseModel)
_OPEN = frozenset({"/healthz", "/readyz", "/metrics"})


def make_app(agent: Agent, metrics: Metrics, token: str) -> web.Application:
    """Routes of the agent. `token` guards everything but the probes and metrics."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(status=200 if agent.ready else 503, text="ok" if agent.ready else "no version loaded")

    async def exposition(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(metrics.registry), content_type="text/plain")

    async def state(_: web.Request) -> web.Response:
        return _json(agent.state())

    async def prepare(request: web.Request) -> web.Response:
        return _json(await agent.prepare(await _body(request, Prepare)))

    async def sync(request: web.Request) -> web.Response:
        order = await _body(request, Sync)
        try:
            return _json(await agent.sync(order))
        except RefusedError as refusal:
            metrics.syncs.labels("refused").inc()
            raise _error(web.HTTPConflict, refusal.code, str(refusal)) from refusal

    async def retain(request: web.Request) -> web.Response:
        return _json(agent.retain(await _body(request, Retain)))

    app = web.Application(middlewares=[_guard(token)])
    app.add_routes(
        [
            web.get("/healthz", healthz),
            web.get("/readyz", readyz),
            web.get("/metrics", exposition),
            web.get("/state", state),
            web.post("/prepare", prepare),
            web.post("/sync", sync),
            web.post("/retain", retain),
        ]
    )
    return app


def _guard(token: str) -> Middleware:
    wanted = f"Bearer {token}".encode()

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").encode()
        if request.path not in _OPEN and not hmac.compare_digest(given, wanted):
            raise _error(web.HTTPUnauthorized, "unauthorized", "the agent's bearer token is missing or wrong")
        return await handler(request)

    return guard


async def _body(request: web.Request, model: type[Model]) -> Model:
    try:
        return model.model_validate_json(await request.read())
    except ValidationError as error:
        raise _error(web.HTTPBadRequest, "invalid_body", str(error)) from error


def _json(model: BaseModel) -> web.Response:
    return web.Response(text=model.model_dump_json(), content_type="application/json")


def _error(kind: type[web.HTTPException], code: str, message: str) -> web.HTTPException:
    body = _ErrorBody(error=_Error(code=code, message=message)).model_dump_json()
    return kind(text=body, content_type="application/json")


class _Error(BaseModel):
    code: str
    message: str


class _ErrorBody(BaseModel):
    error: _Error
