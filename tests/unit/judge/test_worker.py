"""The worker with an in-memory store and endpoint, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

import pytest

from openclaw_core.wire import JudgeTurn
from openclaw_judge.endpoint import Endpoint
from openclaw_judge.state import JudgingState
from openclaw_judge.store import StoreError
from openclaw_judge.worker import LEASE_SEC, Worker

pytestmark = [pytest.mark.looptime]
Asker = Callable[[Sequence[Mapping[str, str]]], Awaitable[str | None]]


def turn(number: int) -> JudgeTurn:
    return JudgeTurn(
        id=number,
        lease=f"lease-{number}",
        session="s",
        turn=number,
        messages=[{"role": "user", "content": "q"}],
        response={"role": "assistant", "content": "a"},
        next_state=[{"role": "user", "content": "Thanks"}],
    )


class MemoryStore:
    """Hands its turns out once; remembers what was written."""

    def __init__(self, turns: list[JudgeTurn]) -> None:
        self.waiting, self.scores, self.drops, self.released = list(turns), {}, {}, []
        self.lost: set[int] = set()
        self.leased_at_once, self.extended, self.broken = 0, 0, 0

    async def lease(self, max_turns: int, lease_sec: float, wait_sec: float) -> list[JudgeTurn]:
        assert lease_sec == LEASE_SEC
        taken, self.waiting = self.waiting[:max_turns], self.waiting[max_turns:]
        self.leased_at_once = max(self.leased_at_once, len(taken))
        if not taken:
            await asyncio.sleep(wait_sec)
        return taken

    async def score(self, turn: JudgeTurn, score: int, votes: list[int | None]) -> bool:
        if self.broken:
            self.broken -= 1
            raise StoreError("away")
        self.scores[turn.id] = (score, votes)
        return True

    async def drop(self, turn: JudgeTurn, reason: str) -> bool:
        self.drops[turn.id] = reason
        return True

    async def extend(self, turns: list[JudgeTurn], lease_sec: float) -> set[int]:
        self.extended += 1
        return {turn.id for turn in turns} - self.lost

    async def release(self, turns: list[JudgeTurn]) -> None:
        self.released += [turn.id for turn in turns]


class ScriptedEndpoint:
    timeout_sec = 30.0

    def __init__(self, asker: Asker) -> None:
        self._asker, self.probes = asker, 0

    async def ask(self, messages: Sequence[Mapping[str, str]], *, deadline: float) -> str | None:
        return await self._asker(messages)

    async def probe(self) -> bool:
        self.probes += 1
        return False


def worker(store: MemoryStore, asker: Asker, *, votes: int = 1, concurrency: int = 4) -> Worker:
    endpoint = cast(Endpoint, ScriptedEndpoint(asker))
    return Worker(store, endpoint, JudgingState(), votes=votes, concurrency=concurrency)


async def run_for(seconds: float, *loops: Any) -> None:
    tasks = [asyncio.ensure_future(loop) for loop in loops]
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_worker_writes_the_majority_of_parallel_votes() -> None:
    replies = iter([r"\boxed{1}", r"\boxed{-1}", r"\boxed{1}"])

    async def ask(_: object) -> str:
        await asyncio.sleep(10)
        return next(replies)

    store = MemoryStore([turn(1)])
    await run_for(10.1, worker(store, ask, votes=3).lease_loop())
    assert store.scores == {1: (1, [1, -1, 1])}


async def test_worker_drops_a_turn_no_vote_of_which_parsed() -> None:
    async def ask(_: object) -> str | None:
        return "no box here"

    store = MemoryStore([turn(1)])
    await run_for(1, worker(store, ask).lease_loop())
    assert store.drops == {1: "unjudged"}
    assert store.scores == {}


async def test_worker_leases_no_more_turns_than_it_can_ask_for() -> None:
    async def ask(_: object) -> str:
        await asyncio.sleep(5)
        return r"\boxed{1}"

    store = MemoryStore([turn(number) for number in range(10)])
    await run_for(14, worker(store, ask, votes=3, concurrency=7).lease_loop())
    assert store.leased_at_once == 2
    assert len(store.scores) == 4


async def test_worker_extends_long_leases_and_gives_up_a_lost_one() -> None:
    async def ask(_: object) -> str:
        await asyncio.sleep(200)
        return r"\boxed{1}"

    store = MemoryStore([turn(1), turn(2)])
    store.lost = {2}
    judging = worker(store, ask)
    await run_for(201, judging.lease_loop(), judging.extend_loop())
    assert store.extended >= 9
    assert list(store.scores) == [1]


async def test_worker_writes_the_score_when_the_gateway_comes_back() -> None:
    async def ask(_: object) -> str:
        return r"\boxed{-1}"

    store = MemoryStore([turn(1)])
    store.broken = 2
    await run_for(30, worker(store, ask).lease_loop())
    assert store.scores == {1: (-1, [-1])}


async def test_worker_gives_held_turns_back_when_it_stops() -> None:
    async def ask(_: object) -> str:
        await asyncio.sleep(1000)
        return ""

    store = MemoryStore([turn(1), turn(2)])
    judging = worker(store, ask)
    await run_for(5, judging.lease_loop())
    await judging.give_back()
    assert store.released == [1, 2]
    assert store.scores == store.drops == {}


async def test_worker_probes_while_the_endpoint_fails_and_nothing_is_held() -> None:
    async def ask(_: object) -> None:
        return None

    state = JudgingState()
    endpoint = ScriptedEndpoint(ask)
    judging = Worker(MemoryStore([]), cast(Endpoint, endpoint), state, votes=1, concurrency=1)
    await run_for(20, judging.probe_loop())
    assert endpoint.probes == 3
    state.answered()
    await run_for(20, judging.probe_loop())
    assert endpoint.probes == 3
