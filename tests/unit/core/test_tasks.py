import asyncio

import pytest

from openclaw_core.tasks import LoopEndedError, run_all

pytestmark = pytest.mark.looptime


async def forever() -> None:
    await asyncio.Event().wait()


async def test_a_loop_that_fails_ends_the_process_with_its_error() -> None:
    async def fails() -> None:
        await asyncio.sleep(5)
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        await run_all({"watch": forever(), "writer": fails()}, stop=asyncio.Event())


async def test_a_loop_that_returns_ends_the_process_by_name() -> None:
    async def returns() -> None:
        await asyncio.sleep(1)

    with pytest.raises(LoopEndedError, match="'watch'"):
        await run_all({"watch": returns(), "other": forever()}, stop=asyncio.Event())


async def test_stop_ends_all_loops_within_the_grace() -> None:
    stop, ended = asyncio.Event(), []

    async def tidy() -> None:
        try:
            await forever()
        finally:
            ended.append("tidy")

    async def stubborn() -> None:
        try:
            await forever()
        finally:
            await asyncio.sleep(3600)

    loop = asyncio.get_running_loop()
    loop.call_later(2, stop.set)
    await run_all({"tidy": tidy(), "stubborn": stubborn()}, stop=stop, grace_sec=10)
    assert ended == ["tidy"]
    assert loop.time() == pytest.approx(12, abs=0.1)
