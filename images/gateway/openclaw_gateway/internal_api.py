"""The internal port: the experience store for judge and trainer, the operator's word on pauses, the gateway's state.

Every route wants the bearer token; bodies and answers are `openclaw_core.wire` models.
"""

import time
from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from openclaw_core import wire
from openclaw_gateway import auth, errors, records_api
from openclaw_gateway.asgi import ClientGoneError, unless_gone
from openclaw_gateway.fleet import Fleet
from openclaw_gateway.gate import Gate
from openclaw_gateway.metrics import Metrics
from openclaw_gateway.store.samples import OldEpochError
from openclaw_gateway.store.store import Store
from openclaw_gateway.store.writer import StoreUnavailableError

_SENT_WITHIN_SEC = 0.4  # the operator waits 0.5 s for the whole answer


def build(
    store: Store,
    gate: Gate,
    fleet: Fleet,
    metrics: Metrics,
    *,
    token: str,
    pod_uid: str,
    now: Callable[[], float] = time.monotonic,
) -> FastAPI:
    """The ASGI application of the internal port."""

    async def authorized(request: Request) -> None:
        if not auth.is_authorized(request.headers, token):
            raise errors.unauthorized("the internal port needs its bearer token")

    app = FastAPI(openapi_url=None)
    _answer_errors(app)
    for router in (
        _turns(store, gate),
        _samples(store),
        records_api.routes(store),
        _rest(store, gate, fleet, metrics, pod_uid=pod_uid, now=now),
    ):
        app.include_router(router, dependencies=[Depends(authorized)])

    @app.get("/healthz")
    async def _healthz() -> dict[str, bool]:
        return {"ok": True}

    return app


def _turns(store: Store, gate: Gate) -> APIRouter:
    router = APIRouter(prefix="/internal/turns")

    @router.post("/lease")
    async def _lease(body: wire.LeaseTurns, request: Request) -> Response:
        return await _long_poll(request, store.lease_turns(body))

    @router.post("/score")
    async def _score(body: wire.ScoreTurn) -> Response:
        canary = gate.pause.canary
        return _answer(await store.score(body, canary.epoch if canary is not None else None))

    @router.post("/extend")
    async def _extend(body: wire.ExtendTurns) -> Response:
        return _answer(await store.extend_turns(body))

    @router.post("/drop")
    async def _drop(body: wire.DropTurn) -> Response:
        return _answer(await store.drop_turn(body))

    @router.post("/release")
    async def _release(body: wire.ReleaseTurns) -> Response:
        return _answer(await store.release_turns(body))

    return router


def _samples(store: Store) -> APIRouter:
    router = APIRouter(prefix="/internal/samples")

    @router.post("/lease")
    async def _lease(body: wire.LeaseSamples, request: Request) -> Response:
        return await _long_poll(request, store.lease_samples(body))

    @router.post("/ack")
    async def _ack(body: wire.AckSamples) -> Response:
        return _answer(await store.ack(body))

    @router.post("/extend")
    async def _extend(body: wire.ExtendSamples) -> Response:
        return _answer(await store.extend_samples(body))

    @router.post("/release")
    async def _release(body: wire.ReleaseSamples) -> Response:
        return _answer(await store.release_samples(body))

    @router.post("/drop")
    async def _drop(body: wire.DropSamples) -> Response:
        return _answer(await store.drop_samples(body))

    return router


def _rest(
    store: Store, gate: Gate, fleet: Fleet, metrics: Metrics, *, pod_uid: str, now: Callable[[], float]
) -> APIRouter:
    router = APIRouter()
    process_start = time.time()

    @router.get("/internal/stats")
    async def _stats() -> Response:
        return _answer(await store.stats(metrics.refusals))

    @router.post("/internal/paused")
    async def _paused(body: wire.Paused) -> Response:
        if body.lease_sec > 0:
            gate.hold(body.epoch, body.lease_sec)
            if not await gate.departures.all_sent(_SENT_WITHIN_SEC):
                message = f"the pause is on, but {gate.departures.unsent} requests of before are still unsent"
                return _error(503, message, "unsent")
        else:
            gate.release(body.epoch, body.serving_version, body.canary)
            if body.engines_changed:
                gate.doubt_engines()
        return _answer(
            wire.PausedAck(epoch=gate.pause.epoch, pod_uid=pod_uid, process_start=process_start, paused=gate.is_on())
        )

    @router.get("/state")
    async def _state() -> Response:
        return _json(
            200,
            {
                "paused": gate.is_on(),
                "pause_remaining_sec": gate.pause.remaining(now()),
                "held_sec": gate.held_sec(),
                "epoch": gate.pause.epoch,
                "serving_version": gate.pause.serving_version,
                "canary_version": gate.pause.canary.version if gate.pause.canary is not None else None,
                "unsent": gate.departures.unsent,
                "engines": [
                    {
                        "address": engine.address,
                        "ready": engine.ready,
                        "version": engine.version,
                        "adapters": sorted(engine.adapters),
                        "in_flight": engine.in_flight,
                    }
                    for engine in fleet.engines.values()
                ],
            },
        )

    return router


def _answer_errors(app: FastAPI) -> None:
    @app.exception_handler(errors.ApiError)
    async def _api(_: Request, error: errors.ApiError) -> Response:
        return _error(error.status, error.message, error.code or "error")

    @app.exception_handler(OldEpochError)
    async def _old(_: Request, error: OldEpochError) -> Response:
        return _error(409, str(error), "old_trainer_epoch")

    @app.exception_handler(StoreUnavailableError)
    async def _down(_: Request, error: StoreUnavailableError) -> Response:
        return _error(503, str(error), "store_down")

    @app.exception_handler(RequestValidationError)
    async def _invalid(_: Request, error: RequestValidationError) -> Response:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        return _error(400, faults, "invalid_body")

    @app.exception_handler(HTTPException)
    async def _http(_: Request, error: HTTPException) -> Response:
        return _error(error.status_code, str(error.detail), "http_error")


async def _long_poll(request: Request, work: Coroutine[Any, Any, BaseModel]) -> Response:
    """Its answer; it ends with its client, for what a dead one leased would be in nobody's hands until it runs out."""
    try:
        return _answer(await unless_gone(request.receive, work))
    except ClientGoneError:
        return Response(status_code=499)


def _answer(message: BaseModel) -> Response:
    return _json(200, message.model_dump())


def _error(status: int, message: str, code: str) -> Response:
    return _json(status, {"error": {"message": message, "code": code}})


def _json(status: int, payload: object) -> Response:
    return Response(orjson.dumps(payload), status, media_type="application/json")
