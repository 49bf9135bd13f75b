"""The internal port's routes for people: export what the store keeps, erase a session."""

from typing import Annotated, Literal

import orjson
from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from openclaw_core import wire
from openclaw_gateway.store.store import Store

Exported = Literal["next_state", "judge", "queued", "leased", "trained", "dropped"]


def routes(store: Store) -> APIRouter:
    router = APIRouter(prefix="/internal")

    @router.get("/export")
    async def _export(
        state: Annotated[list[Exported] | None, Query()] = None,
        session: Annotated[str | None, Query(min_length=1, max_length=256)] = None,
    ) -> Response:
        # A store that fails in the middle cuts the connection: nobody takes half an export for whole.
        lines = store.export(state or (), session)
        return StreamingResponse(lines, media_type="application/x-ndjson")

    @router.post("/sessions/erase")
    async def _erase(body: wire.EraseSession) -> Response:
        erased = await store.erase(body)
        return Response(orjson.dumps(erased.model_dump()), media_type="application/json")

    return router
