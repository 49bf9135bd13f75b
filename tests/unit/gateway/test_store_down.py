"""A database that fails under a running gateway: what clients get, and that nothing is lost when it works again."""

import asyncio

import pytest
from sqlalchemy import func, select

from openclaw_gateway import main
from openclaw_gateway.store.schema import opt_outs
from openclaw_gateway.store.writer import StoreUnavailableError
from tests.fakes.engine import FakeEngine, Knobs
from tests.unit.gateway.running import config, conversation, running

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


@pytest.mark.parametrize("session", [None, "s"])
async def test_words_opted_out_of_while_the_store_is_down_are_known_when_it_works(broken, session):
    setup = config(policy_serving={"gateway": {"on_store_down": "serveUntracked"}})
    async with FakeEngine(reply="Hello", knobs=Knobs(status=500)) as engine, running(engine, gateway=setup) as gateway:
        broken(gateway.parts.store, True)
        secret = conversation("Hi", "Hello", "secret")
        status, _ = await gateway.post(secret, session=session, headers={"X-Openclaw-No-Train": "1"})
        assert status == 502
        broken(gateway.parts.store, False)
        engine.knobs.status = None
        await gateway.parts.store.upkeep()
        await gateway.chat("Hi", "Hello", "secret", "half an ans", "more", session=session)
        assert (await gateway.stats()).untracked == {"opt_out": 1}


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


def commits_of(store):
    """Grows by the number of operations of each commit."""
    found, transact = [], store._writer._transact
    store._writer._transact = lambda batch: found.append(len(batch)) or transact(batch)
    return found


async def test_thousands_served_without_the_store_are_counted_in_a_few_commits(broken):
    """Heartbeats wait for as long as these take."""
    async with running() as gateway:
        store = gateway.parts.store
        broken(store, True)
        for number in range(3000):
            await store.count_untracked(("side", "store_down")[number % 2], "alice")
        broken(store, False)
        commits = commits_of(store)
        await store.upkeep()
        assert sum(commits) < 10
        assert (await gateway.stats()).untracked == {"side": 1500, "store_down": 1500}


async def test_no_opt_out_is_forgotten_however_many_there_were_without_the_store(broken):
    async with running() as gateway:
        store = gateway.parts.store
        broken(store, True)
        for number in range(600):
            await store.count_untracked("opt_out", "alice", [b"%d" % number])
        broken(store, False)
        commits = commits_of(store)
        await store.upkeep()
        assert len(commits) < 10
        assert await store._writer.run(marks_kept) == 600
        assert (await gateway.stats()).untracked == {"opt_out": 600}


def marks_kept(tx):
    return tx.connection.execute(select(func.count()).select_from(opt_outs)).scalar()


async def test_store_that_fails_again_loses_no_count(broken, monkeypatch):
    async with running() as gateway:
        store = gateway.parts.store
        broken(store, True)
        await store.count_untracked("opt_out", "alice", [b"chain"])
        broken(store, False)
        run, left = store._writer.run, 1

        async def fails_after_one(operation, **named):
            nonlocal left
            left -= 1
            if left < 0:
                raise StoreUnavailableError("database or disk is full")
            return await run(operation, **named)

        monkeypatch.setattr(store._writer, "run", fails_after_one)
        with pytest.raises(StoreUnavailableError):
            await store.upkeep()
        monkeypatch.undo()
        await store.upkeep()
        assert await store._writer.run(marks_kept) == 1
        assert (await gateway.stats()).untracked == {"opt_out": 1}


async def test_what_is_owed_is_stored_before_the_gateway_ends(broken, tmp_path):
    async with running(directory=tmp_path) as gateway:
        broken(gateway.parts.store, True)
        await gateway.parts.store.count_untracked("opt_out", "alice", [b"chain"])
        broken(gateway.parts.store, False)
    async with running(directory=tmp_path) as gateway:
        assert await gateway.parts.store._writer.run(marks_kept) == 1
        assert (await gateway.stats()).untracked == {"opt_out": 1}


@pytest.fixture
def quick_upkeep():
    with pytest.MonkeyPatch.context() as clock:
        clock.setattr(main, "UPKEEP_EVERY_SEC", 0.05)
        yield


async def readiness(gateway):
    async with gateway.http.get(f"{gateway.url}/readyz") as response:
        return response.status


@pytest.mark.usefixtures("quick_upkeep")
async def test_readiness_follows_the_store(broken):
    async with running() as gateway:

        async def until_readiness_is(status):
            async with asyncio.timeout(10):
                while await readiness(gateway) != status:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

        await until_readiness_is(200)
        broken(gateway.parts.store, True)
        await until_readiness_is(503)
        broken(gateway.parts.store, False)
        await until_readiness_is(200)


@pytest.mark.usefixtures("quick_upkeep")
async def test_gateway_that_serves_without_the_store_stays_ready_without_it(broken):
    """Unready it would be out of its Service, and nobody would be served at all."""
    setup = config(policy_serving={"gateway": {"on_store_down": "serveUntracked"}})
    async with FakeEngine(reply="Hello") as engine, running(engine, gateway=setup) as gateway:
        broken(gateway.parts.store, True)
        async with asyncio.timeout(10):
            while gateway.parts.store_up:  # noqa: ASYNC110 - upkeep has no event for it
                await asyncio.sleep(0.02)
        assert await readiness(gateway) == 200
        assert (await gateway.chat("Hi"))["choices"][0]["message"]["content"] == "Hello"
        gateway.parts.stop()
        assert await readiness(gateway) == 503
