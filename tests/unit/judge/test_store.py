"""The judge's posts against a small gateway: addresses, token, bodies, and what a refusal or an absence becomes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from openclaw_core import wire
from openclaw_judge.store import Store, StoreError

TURN = wire.JudgeTurn(
    id=7,
    lease="lease-7",
    session="s",
    turn=0,
    messages=[{"role": "user", "content": "q"}],
    response={"role": "assistant", "content": "a"},
    next_state=[{"role": "user", "content": "Thanks"}],
)


@asynccontextmanager
async def gateway(replies: dict[str, Any], status: int = 200) -> AsyncIterator[tuple[Store, list[tuple[str, Any]]]]:
    seen: list[tuple[str, Any]] = []

    async def handler(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer gateway-token"
        seen.append((request.path, await request.json()))
        return web.json_response(replies, status=status)

    app = web.Application()
    app.router.add_post("/internal/turns/{verb}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with aiohttp.ClientSession() as session:
        yield Store(session, f"http://127.0.0.1:{runner.addresses[0][1]}/", "gateway-token", "judge-0"), seen
    await runner.cleanup()


async def test_lease_asks_for_this_worker_and_returns_the_turns() -> None:
    async with gateway({"turns": [TURN.model_dump()]}) as (store, seen):
        assert await store.lease(4, 60, 0) == [TURN]
    assert seen == [
        ("/internal/turns/lease", {"worker": "judge-0", "max_turns": 4, "lease_sec": 60.0, "wait_sec": 0.0})
    ]


async def test_score_and_drop_say_whether_the_lease_was_still_held() -> None:
    async with gateway({"ids": [7]}) as (store, seen):
        assert await store.score(TURN, -1, [-1, None])
        assert await store.drop(TURN, "unjudged")
        await store.release([TURN])
        assert await store.extend([TURN], 60) == {7}
    assert [path.rsplit("/", 1)[1] for path, _ in seen] == ["score", "drop", "release", "extend"]
    assert seen[0][1] == {"id": 7, "lease": "lease-7", "score": -1, "votes": [-1, None]}
    async with gateway({"ids": []}) as (store, _):
        assert not await store.score(TURN, 1, [1])


@pytest.mark.parametrize(("replies", "status"), [({"error": {"message": "no"}}, 401), ({"something": 1}, 200)])
async def test_refusal_or_nonsense_is_a_store_error(replies: dict[str, Any], status: int) -> None:
    async with gateway(replies, status) as (store, _):
        with pytest.raises(StoreError):
            await store.lease(1, 60, 0)


async def test_absent_gateway_is_a_store_error() -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(StoreError, match="turns/lease"):
            await Store(session, "http://127.0.0.1:9", "t", "w").lease(1, 60, 0)
