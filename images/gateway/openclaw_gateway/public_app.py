"""The public port: the chat route raw, everything else through FastAPI, every error in OpenAI's shape."""

from collections.abc import Awaitable, Callable

import orjson
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from openclaw_gateway import asgi, auth, errors
from openclaw_gateway.chat import Chat
from openclaw_gateway.upstream import PATH


class PublicApp:
    """ASGI. `ready` says whether the store takes turns, `render_metrics` is the scrape."""

    def __init__(
        self,
        chat: Chat,
        *,
        served_name: str,
        api_key: str | None,
        created: int,
        ready: Callable[[], bool],
        render_metrics: Callable[[], Awaitable[bytes]],
    ) -> None:
        self._chat = chat
        self._rest = _rest(
            served_name=served_name, api_key=api_key, created=created, ready=ready, render_metrics=render_metrics
        )

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        if scope["type"] == "http" and scope["path"] == PATH and scope["method"] == "POST":
            await self._chat(scope, receive, send)
        else:
            await self._rest(scope, receive, send)


def _rest(
    *,
    served_name: str,
    api_key: str | None,
    created: int,
    ready: Callable[[], bool],
    render_metrics: Callable[[], Awaitable[bytes]],
) -> FastAPI:
    app = FastAPI(openapi_url=None)
    card = {
        "id": served_name,
        "object": "model",
        "created": created,
        "owned_by": "openclaw",
        "root": served_name,
        "parent": None,
    }

    @app.exception_handler(errors.ApiError)
    async def _api_error(_: Request, error: errors.ApiError) -> Response:
        return _json(error.status, error.body(), error.headers())

    @app.exception_handler(HTTPException)
    async def _http_error(request: Request, error: HTTPException) -> Response:
        if error.status_code == 404:
            return await _api_error(request, errors.not_found(f"{request.method} {request.url.path}"))
        message = f"{request.method} {request.url.path}: {error.detail}; this server has {errors.ENDPOINTS}"
        refused = errors.ApiError(error.status_code, message, code="method_not_allowed")
        return _json(refused.status, refused.body(), dict(error.headers or {}))

    @app.api_route(PATH, methods=["GET", "PUT", "DELETE", "PATCH"])
    async def _chat_takes_post() -> Response:
        raise HTTPException(405, "this endpoint takes POST", {"Allow": "POST"})

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
        auth.owner_of(request.headers, api_key)
        return _json(200, {"object": "list", "data": [card]}, {})

    @app.get("/v1/models/{name:path}")
    async def _model(request: Request, name: str) -> Response:
        auth.owner_of(request.headers, api_key)
        if name != served_name:
            raise errors.no_model(name, served_name)
        return _json(200, card, {})

    return app


def _json(status: int, payload: object, headers: dict[str, str]) -> Response:
    return Response(orjson.dumps(payload), status, headers, "application/json")
