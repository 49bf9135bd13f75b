"""A database that fails under a running gateway: what clients get, and that nothing is lost when it works again."""

import asyncio

import pytest

from openclaw_gateway import main
from openclaw_gateway.store.writer import StoreUnavailableError
from tests.fakes.engine import FakeEngine
from tests.unit.gateway.running import config, running

USER = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def broken(monkeypatch):
    """`broken(store, True)`: every commit fails as on a full disk."""

    def breaks(store, on):
        if on:
            monkeypatch.setattr(store._writer, "run", fails)
        else:
            monkeypatch.undo()

    async def fails(_operation, **_):
        raise StoreUnavailableError("database or disk is full")

    return breaks


async def test_main_turns_are_refused_and_the_gateway_is_unready_until_the_store_works(broken):
    async with FakeEngine() as engine, running(engine) as gateway:
        broken(gateway.parts.store, True)
        status, body = await gateway.post(USER)
        assert (status, body["error"]["code"]) == (500, "store_down")
        assert engine.requests == []
        broken(gateway.parts.store, False)
        await gateway.chat("Hi")
        assert (await gateway.stats()).served == 1


async def test_main_turns_are_served_untracked_when_told_so_and_counted_later(broken):
    setup = config(policy_serving={"gateway": {"on_store_down": "serveUntracked"}})
    async with FakeEngine(reply="Hello") as engine, running(engine, gateway=setup) as gateway:
        broken(gateway.parts.store, True)
        assert (await gateway.chat("Hi"))["choices"][0]["message"]["content"] == "Hello"
        broken(gateway.parts.store, False)
        await gateway.parts.store.upkeep()
        assert (await gateway.stats()).untracked == {"store_down": 1}


async def test_turn_whose_end_could_not_be_stored_is_finished_later(broken):
    async with FakeEngine(reply="Hello") as engine, running(engine) as gateway:
        arrive = gateway.parts.store.arrive

        async def arrive_then_break(arrival):
            admission = await arrive(arrival)
            broken(gateway.parts.store, True)
            return admission

        gateway.parts.store.arrive = arrive_then_break
        assert (await gateway.chat("Hi"))["choices"][0]["message"]["content"] == "Hello"
        broken(gateway.parts.store, False)
        assert (await gateway.stats()).waiting.generating == 1
        await gateway.parts.store.upkeep()
        assert (await gateway.stats()).waiting.next_state == 1


async def test_readiness_follows_the_store(broken):
    with pytest.MonkeyPatch.context() as clock:
        clock.setattr(main, "UPKEEP_EVERY_SEC", 0.05)
        async with running() as gateway:

            async def until_readiness_is(status):
                async with asyncio.timeout(10):
                    while (await gateway.http.get(f"{gateway.url}/readyz")).status != status:  # noqa: ASYNC110
                        await asyncio.sleep(0.05)

            await until_readiness_is(200)
            broken(gateway.parts.store, True)
            await until_readiness_is(503)
            broken(gateway.parts.store, False)
            await until_readiness_is(200)
