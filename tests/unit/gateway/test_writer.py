"""Group commit: results after the commit, a failing operation fails alone, a dead disk is told as such."""

import asyncio

import pytest
from sqlalchemy import event, text

from openclaw_gateway.store import writer as writer_module
from openclaw_gateway.store.databases import Sqlite
from openclaw_gateway.store.transaction import Topic
from openclaw_gateway.store.writer import StoreUnavailableError, Writer


def opened_database(directory):
    database = Sqlite(directory / "x.db")
    database.prepare()
    return database


@pytest.fixture
async def writer(tmp_path):
    opened = Writer(opened_database(tmp_path))
    yield opened
    await opened.close()


def count(name):
    return lambda tx: tx.count(name)


def value(name):
    query = text("SELECT value FROM counters WHERE name = :name")
    return lambda tx: tx.connection.execute(query, {"name": name}).scalar()


async def test_concurrent_operations_are_all_committed(writer):
    await asyncio.gather(*(writer.run(count("a")) for _ in range(300)))
    assert await writer.run(value("a")) == 300


async def test_operations_that_come_side_by_side_share_commits(tmp_path, monkeypatch):
    monkeypatch.setattr(writer_module, "GATHER_SEC", 0.2)
    database = opened_database(tmp_path)
    begun = []
    event.listen(database.engine, "begin", begun.append)
    writer = Writer(database)

    async def turn():  # a begin, an engine's answer, an end
        await writer.run(count("a"))
        await asyncio.sleep(0.01)
        await writer.run(count("b"))

    await asyncio.gather(*(turn() for _ in range(20)))
    assert len(begun) <= 4  # what came first, the other begins, the ends
    assert (await writer.run(value("a")), await writer.run(value("b"))) == (20, 20)
    await writer.close()


async def test_failing_operation_fails_alone(writer):
    def broken(tx):
        tx.count("a", 100)
        raise ValueError("no")

    results = await asyncio.gather(
        writer.run(count("a")), writer.run(broken), writer.run(count("a")), return_exceptions=True
    )
    assert [type(result) for result in results] == [type(None), ValueError, type(None)]
    assert await writer.run(value("a")) == 2


async def test_database_error_is_unavailable_and_passes(writer):
    with pytest.raises(StoreUnavailableError, match="no such table"):
        await writer.run(lambda tx: tx.connection.execute(text("SELECT * FROM nowhere")))
    await writer.run(count("a"))


async def test_commit_wakes_those_who_wait_for_its_topic(writer):
    pulse = writer.pulse(Topic.JUDGE)
    waiting = asyncio.create_task(pulse.wait_past(pulse.count, 5.0))
    await asyncio.sleep(0)
    await writer.run(lambda tx: tx.touched.add(Topic.QUEUE))
    assert not waiting.done()
    await writer.run(lambda tx: tx.touched.add(Topic.JUDGE))
    await asyncio.wait_for(waiting, 1.0)


async def test_file_is_durable_and_write_ahead(writer):
    modes = await writer.run(
        lambda tx: [
            tx.connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "secure_delete")
        ]
    )
    assert modes == ["wal", 2, 1]


async def test_closed_writer_refuses(tmp_path):
    writer = Writer(opened_database(tmp_path))
    await writer.run(count("a"))
    await writer.close()
    with pytest.raises(StoreUnavailableError):
        await writer.run(count("a"))


async def test_result_that_nobody_waits_for_is_told(writer):
    told = []
    waiting = asyncio.create_task(writer.run(lambda tx: tx.count("a") or 7, unclaimed=told.append))
    await asyncio.sleep(0)
    waiting.cancel()
    await writer.run(count("b"))
    assert told == [7]
