"""The way out: running turns end first, bounded; an engine that serves nobody stops at once."""

import asyncio

import pytest

from openclaw_engine import drain
from openclaw_engine.sglang import SglangError


class Engine:
    """SGLang as the drain sees it: how long its turns still run, in seconds of the loop; None = it does not answer."""

    def __init__(self, busy_sec: float | None) -> None:
        self._busy_until = None if busy_sec is None else asyncio.get_running_loop().time() + busy_sec

    async def is_ready(self) -> bool:
        return self._busy_until is not None

    async def running_requests(self) -> int:
        if self._busy_until is None:
            raise SglangError("connection refused")
        return int(asyncio.get_running_loop().time() < self._busy_until)


async def seconds_of_drain(busy_sec: float | None) -> float:
    stop, done, loop = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop()
    stop.set()
    began = loop.time()
    await drain.drained(stop, Engine(busy_sec), done)  # type: ignore[arg-type]  # the two calls it makes
    assert done.is_set()
    return loop.time() - began


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("busy_sec", "seconds"),
    [(0.0, drain.SETTLE_SEC), (30.0, 30.0), (900.0, drain.SETTLE_SEC + drain.LIMIT_SEC), (None, 0.0)],
)
async def test_drain_lasts_as_long_as_its_turns_within_the_limit(busy_sec: float | None, seconds: float) -> None:
    assert await seconds_of_drain(busy_sec) == pytest.approx(seconds, abs=0.2)


@pytest.mark.looptime
async def test_nothing_is_drained_before_the_signal() -> None:
    stop, done = asyncio.Event(), asyncio.Event()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(drain.drained(stop, Engine(0.0), done), 100)  # type: ignore[arg-type]
    assert not done.is_set()
