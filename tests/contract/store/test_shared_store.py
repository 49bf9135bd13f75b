"""Several gateways on one PostgreSQL: exact bounds, nothing given twice; who dies loses nothing of the others."""

import asyncio
import itertools
import os
import sys

import psycopg
import pytest

from openclaw_core import wire
from openclaw_gateway.store.databases import Postgres
from openclaw_gateway.store.stats import difference
from openclaw_gateway.store.store import Store
from openclaw_gateway.store.turns import Begun, Finished
from openclaw_gateway.store.writer import StoreUnavailableError
from tests.contract.store.shared import POLICY
from tests.fakes import postgres
from tests.unit.gateway.stored import arrival, recording, talk

pytestmark = pytest.mark.contract
_numbers = itertools.count()


@pytest.fixture
def training():
    return f"t{next(_numbers)}"


@pytest.fixture
async def opened(server, training):
    """`await opened("pod-a")`: a gateway on this test's store."""
    stores = []

    async def one(pod="pod", url=server.url):
        store = await Store.open(
            Postgres(url, namespace="shared", training=training), POLICY, f"{pod}-{len(stores):08x}"
        )
        stores.append(store)
        return store

    yield one
    for store in stores:
        await store.close()


async def process(server, training, pod, *mode):
    command = (sys.executable, "-m", "tests.contract.store.one_gateway", server.url, training, pod, *mode)
    return await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)


async def shown(store):
    stats = await store.stats({})
    assert difference(stats) == (0, 0), stats
    return stats


async def queued_sample(store, session):
    """A turn from its begin to the queue; its id."""
    begun = await store.arrive(arrival(talk("q"), session=session))
    await store.finish(begun.turn_id, Finished(talk("q"), {"role": "assistant", "content": "ok"}, None, recording()))
    await store.arrive(arrival(talk("q", "ok", "thanks"), session=session, untracked="n"))
    leased = await store.lease_turns(wire.LeaseTurns(worker="w", max_turns=9, lease_sec=60))
    for turn in leased.turns:
        await store.score(wire.ScoreTurn(id=turn.id, lease=turn.lease, score=1, votes=[1]))
    return begun.turn_id


@pytest.mark.parametrize(("eta", "batch", "capacity"), [("0", "4", 4), ("2", "4", 12)])
async def test_capacity_is_exact_over_two_processes(server, training, opened, eta, batch, capacity):
    await opened()
    gateways = [await process(server, training, pod, "admit", eta, batch) for pod in ("a", "b")]
    admitted = [int((await gateway.communicate())[0]) for gateway in gateways]
    assert sum(admitted) == capacity


async def test_killed_gateways_lose_their_own_turns_only_and_nothing_is_trained_twice(server, training, opened):
    gateways = [await process(server, training, pod, "work") for pod in ("a", "b")]
    for gateway in gateways:
        assert (await gateway.stdout.readline()) == b"ready\n"
    survivor = await opened("c")
    for number, gateway in enumerate(gateways, start=1):
        async with asyncio.timeout(60):
            while (await shown(survivor)).trained < 8 * number:  # noqa: ASYNC110 - the store tells nobody
                await asyncio.sleep(0.1)
        gateway.kill()
    said = [(await gateway.communicate())[0].decode().split() for gateway in gateways]
    trained = [int(word) for words in said for word in words]
    assert len(trained) == len(set(trained)) > 0
    assert (await shown(survivor)).trained >= len(trained)
    generating = (await shown(survivor)).waiting.generating
    for pod in ("a", "b"):
        await opened(pod)  # the kubelet starts the container again
    after = await shown(survivor)
    assert (after.waiting.generating, after.dropped.get("gateway_lost", 0)) == (0, generating)


async def test_judge_slots_and_samples_are_shared_by_all_gateways(opened):
    one, other = await opened("a"), await opened("b")
    for number in range(6):
        await queued_sample(one, f"s{number}")
    for number in range(5):
        begun = await other.arrive(arrival(talk("q"), session=f"w{number}"))
        answer = {"role": "assistant", "content": "ok"}
        await other.finish(begun.turn_id, Finished(talk("q"), answer, None, recording()))
        await one.arrive(arrival(talk("q", "ok", "hm"), session=f"w{number}", untracked="n"))
    request = wire.LeaseTurns(worker="w", max_turns=9, lease_sec=60)
    leased = await asyncio.gather(*(store.lease_turns(request) for store in (one, other) * 3))
    assert len({turn.id for each in leased for turn in each.turns}) == 3
    assert sum(len(each.turns) for each in leased) == 3
    wanted = wire.LeaseSamples(trainer_epoch=1, batch=3, min_batch=3, batch_wait_sec=9, lease_sec=60)
    batches = await asyncio.gather(*(store.lease_samples(wanted) for store in (one, other) * 2))
    ids = [sample.id for batch in batches for sample in batch.samples]
    assert len(ids) == len(set(ids)) == 6


async def test_trainings_share_a_database_and_nothing_else(server, opened):
    store = await opened()
    await store.arrive(arrival(talk("q")))
    stranger = await Store.open(Postgres(server.url, namespace="shared", training="other"), POLICY, "pod-0")
    try:
        assert (await shown(stranger)).served == 0
    finally:
        await stranger.close()


async def test_begin_whose_commit_lost_its_connection_is_the_one_that_happened(opened, monkeypatch):
    store = await opened()
    commit = store._writer._database.engine.dialect.do_commit

    def committed_and_cut(connection):
        commit(connection)
        monkeypatch.undo()
        connection.driver_connection.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(store._writer._database.engine.dialect, "do_commit", committed_and_cut)
    admission = await store.arrive(arrival(talk("q")))
    assert isinstance(admission, Begun)
    stats = await shown(store)
    assert (stats.served, stats.waiting.generating) == (1, 1)


async def test_begin_whose_commit_never_arrived_did_not_happen(opened, monkeypatch):
    store = await opened()

    def cut(connection):
        monkeypatch.undo()
        connection.driver_connection.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(store._writer._database.engine.dialect, "do_commit", cut)
    with pytest.raises(StoreUnavailableError):
        await store.arrive(arrival(talk("q")))
    assert (await shown(store)).served == 0


async def test_server_that_dies_and_returns_keeps_every_turn():
    with postgres.running() as server:
        database = Postgres(server.url, namespace="n", training="t")
        store = await Store.open(database, POLICY, "pod-00000001")
        try:
            before = await store.arrive(arrival(talk("before")))
            server.kill()
            with pytest.raises(StoreUnavailableError):
                await store.arrive(arrival(talk("meanwhile")))
            answer = {"role": "assistant", "content": "ok"}
            await store.finish(before.turn_id, Finished(talk("before"), answer, None, recording()))
            (server.directory / "data" / "postmaster.pid").unlink()
            server.start()
            await store.upkeep()
            stats = await shown(store)
            assert (stats.served, stats.waiting.next_state, stats.waiting.generating) == (1, 1, 0)
        finally:
            await store.close()


async def test_stopped_gateway_in_the_middle_of_a_commit_does_not_stop_the_others(server, training, opened):
    store = await opened()
    stopped = Postgres(server.url, namespace="shared", training=training)
    with stopped.engine.connect() as connection:
        stopped.start(connection)  # and nothing more: it holds the lock
        assert isinstance(await store.arrive(arrival(talk("q"))), Begun)
        connection.invalidate()
    stopped.engine.dispose()


@pytest.mark.parametrize(
    "url", ["postgresql://user:s3cret@127.0.0.1:9/db", "postgresql://user:s3cret@/db?host=/nowhere"]
)
async def test_unreachable_database_is_said_without_its_password(url):
    with pytest.raises(StoreUnavailableError) as raised:
        await Store.open(Postgres(url, namespace="n", training="t"), POLICY, "pod-0")
    assert "s3cret" not in str(raised.value)
    assert os.environ.get("PGPASSWORD") is None
