"""The public port: routes that submit go raw to `Chat`, everything else through FastAPI, errors in each API's shape."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime

import orjson
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from openclaw_gateway import asgi, errors
from openclaw_gateway.anthropic import count, replies
from openclaw_gateway.anthropic import face as anthropic
from openclaw_gateway.chat import Chat
from openclaw_gateway.exchanges import Exchanges
from openclaw_gateway.faces import ChatFace, CompletionsFace, Face
from openclaw_gateway.keys import Keys
from openclaw_gateway.metrics import Metrics
from openclaw_gateway.upstream import Upstream

FACES: Mapping[str, Face] = {face.path: face for face in (ChatFace(), anthropic.MessagesFace(), CompletionsFace())}
"""By path; each takes POST."""


class PublicApp:
    """ASGI. `ready` says whether turns are taken, `render_metrics` is the scrape."""

    def __init__(
        self,
        chat: Chat,
        upstream: Upstream,
        *,
        served_name: str,
        keys: Keys,
        created: int,
        ready: Callable[[], bool],
        exchanges: Exchanges,
        metrics: Metrics,
        render_metrics: Callable[[], Awaitable[bytes]],
    ) -> None:
        self._chat = chat
        self._rest = _rest(
            upstream,
            served_name=served_name,
            keys=keys,
            created=created,
            ready=ready,
            exchanges=exchanges,
            metrics=metrics,
            render_metrics=render_metrics,
        )

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        face = FACES.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if face is not None:
            await self._chat(face, scope, receive, send)
        else:
            await self._rest(scope, receive, send)


def _rest(
    upstream: Upstream,
    *,
    served_name: str,
    keys: Keys,
    created: int,
    ready: Callable[[], bool],
    exchanges: Exchanges,
    metrics: Metrics,
    render_metrics: Callable[[], Awaitable[bytes]],
) -> FastAPI:
    app = FastAPI(openapi_url=None)
    card = _card(served_name, created)

    @app.exception_handler(errors.ApiError)
    async def _api_error(request: Request, error: errors.ApiError) -> Response:
        return _error(request, error, error.headers())

    @app.exception_handler(asgi.ClientGoneError)
    async def _gone(_: Request, __: asgi.ClientGoneError) -> Response:
        return Response(status_code=400)  # nobody reads it

    @app.exception_handler(HTTPException)
    async def _http_error(request: Request, error: HTTPException) -> Response:
        where = f"{request.method} {request.url.path}"
        if error.status_code == 404:
            return _error(request, errors.not_found(where), {})
        message = f"{where}: {error.detail}; this server has {errors.ENDPOINTS}"
        refused = errors.ApiError(error.status_code, message, code="method_not_allowed")
        return _error(request, refused, dict(error.headers or {}))

    async def _takes_post() -> Response:
        raise HTTPException(405, "this endpoint takes POST", {"Allow": "POST"})

    for path in FACES:
        app.add_api_route(path, _takes_post, methods=["GET", "PUT", "DELETE", "PATCH"])

    @app.get("/healthz")
    async def _healthz() -> dict[str, bool]:
        return {"ok": True}

    @app.get("/readyz")
    async def _readyz() -> Response:
        is_ready = ready()
        return _json(200 if is_ready else 503, {"ok": is_ready}, {})

    @app.get("/metrics")
    async def _metrics() -> Response:
        return Response(await render_metrics(), media_type="text/plain; version=0.0.4")

    @app.get("/v1/models")
    async def _models(request: Request) -> Response:
        keys.caller(request.headers)
        page = {"has_more": False, "first_id": served_name, "last_id": served_name}
        return _json(200, {"object": "list", "data": [card]} | page, {})

    @app.get("/v1/models/{name:path}")
    async def _model(request: Request, name: str) -> Response:
        keys.caller(request.headers)
        if name != served_name:
            raise errors.no_model(name, served_name)
        return _json(200, card, {})

    @app.post(anthropic.COUNT_PATH)
    async def _count_tokens(request: Request) -> Response:
        exchanges.enter()
        try:
            caller = keys.caller(request.headers)
            metrics.asked(caller.name, anthropic.COUNT_PATH)
            raw = await asgi.read_body(request.receive, asgi.client_of(request.scope, request.receive))
            counting = count.count(upstream, raw, model=served_name, session=caller.owner)
            return _json(200, await asgi.unless_gone(request.receive, counting), {})
        finally:
            exchanges.leave()

    return app


def _card(served_name: str, created: int) -> dict[str, object]:
    """The model as both APIs show it: OpenAI's fields, then Anthropic's."""
    return {
        "id": served_name,
        "object": "model",
        "created": created,
        "owned_by": "openclaw",
        "root": served_name,
        "parent": None,
        "type": "model",
        "display_name": served_name,
        "created_at": datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _error(request: Request, error: errors.ApiError, headers: Mapping[str, str]) -> Response:
    """Anthropic's shape under its own path, OpenAI's everywhere else."""
    request_id = asgi.request_id(request.headers)
    found = {"x-request-id": request_id} | dict(headers)
    if request.url.path.startswith(anthropic.PATH):
        return _json(error.status, replies.error_body(error, request_id), found | {"request-id": request_id})
    return _json(error.status, error.body(), found)


def _json(status: int, payload: object, headers: dict[str, str]) -> Response:
    return Response(orjson.dumps(payload), status, headers, "application/json")
