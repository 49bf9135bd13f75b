"""The user of the fault matrix: its silences, and that a real gateway's store has a turn for each of its answers."""

import asyncio
from pathlib import Path

import pytest

from openclaw_core.wire import Stats, Waiting
from tests.fakes.engine import FakeEngine, Knobs
from tests.faults import books
from tests.faults.client import Client, Silence
from tests.unit.gateway.running import running


def test_silence_is_refused_until_the_last_503_and_held_from_then_on() -> None:
    client = Client("", answers=[1.0, 10.0], refusals=[0.5, 2.0, 3.0])
    assert client.silences(0.0, 11.0) == [Silence(0.5, 0.5), Silence(2.0, 7.0), Silence(0.0, 1.0)]
    assert client.longest_silence(0.0, 11.0) == 9.0


@pytest.mark.parametrize(
    ("finished", "stats", "lost"),
    [
        ({"a", "b"}, Stats(served=2, recorded=2, dropped={"final": 2}), 0),
        ({"a"}, Stats(served=2, recorded=2, dropped={"final": 1, "gateway_lost": 1}), 1),
        ({"a", "b"}, Stats(served=3, recorded=2, dropped={"final": 2}), 1),
        ({"a", "b"}, Stats(served=4, recorded=4, dropped={"final": 2}, waiting=Waiting(generating=1)), 1),
    ],
)
def test_turn_is_lost_when_the_store_lacks_it_or_the_accounts_do_not_add_up(
    finished: set[str], stats: Stats, lost: int
) -> None:
    assert books.lost(["a", "b"], finished, stats) == lost


async def asked(client: Client, until_answers: int) -> None:
    task = asyncio.create_task(client.run())
    async with asyncio.timeout(30):
        while len(client.answers) < until_answers:  # noqa: ASYNC110 - the client tells nobody
            await asyncio.sleep(0.02)
    task.cancel()
    await asyncio.wait([task])


async def test_every_answer_of_the_client_is_a_finished_turn_that_keeps_no_place(tmp_path: Path) -> None:
    async with FakeEngine(knobs=Knobs(status=500)) as engine, running(engine, directory=tmp_path) as gateway:
        client = Client(f"{gateway.url}/v1/chat/completions")
        asking = asyncio.create_task(asked(client, 5))
        await asyncio.sleep(0.5)  # its first question fails a few times and is asked again
        engine.knobs.status = None
        await asking
        answered, stats = client.take_answered(), await gateway.stats()
        assert len(answered) >= 5
        assert (stats.recorded, stats.dropped) == (len(answered), {"final": len(answered)})
        assert stats.untracked["replaced"] > 0
        assert books.lost(answered, books.finished_sessions(tmp_path / "experience.db"), stats) == 0
        assert books.lost([*answered, "another"], books.finished_sessions(tmp_path / "experience.db"), stats) == 1


async def test_client_that_opts_out_leaves_no_turn(tmp_path: Path) -> None:
    async with FakeEngine() as engine, running(engine, directory=tmp_path) as gateway:
        await asked(Client(f"{gateway.url}/v1/chat/completions", recorded=False), 2)
        stats = await gateway.stats()
        assert (stats.recorded, set(stats.untracked)) == (0, {"opt_out"})
