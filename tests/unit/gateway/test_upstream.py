"""The one retry that is safe: what it may not spend itself on."""

import asyncio

from tests.fakes.hostile_engine import HostileEngine
from tests.unit.gateway.running import conversation, running

SIDE = {"X-Turn-Type": "side"}


async def test_two_stale_connections_of_an_engine_cost_no_turn():
    """It closed both while they were idle; the second may not be what the first one's turn is tried again on."""
    both, served = asyncio.Barrier(2), []

    async def serves_each_connection_once(talk):
        if talk._writer in served:
            talk.abort()
            return
        served.append(talk._writer)
        if talk.number < 2:
            await both.wait()
        await talk.reply({"content": "Hi"}, connection="keep-alive")

    async with HostileEngine(serves_each_connection_once) as engine, running(engine) as gateway:
        async with asyncio.timeout(5):
            await asyncio.gather(*(gateway.post(conversation("Hi"), headers=SIDE) for _ in range(2)))
        status, body = await gateway.post(conversation("Hi"), headers=SIDE)
        assert (status, len(engine.talks), len(served)) == (200, 4, 3), body
