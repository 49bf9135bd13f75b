import asyncio

import pytest

from openclaw_operator.queue import BACKOFF_MAX_SEC, SPACING_SEC, WorkQueue


@pytest.mark.looptime
async def test_queue_gives_a_key_once_however_often_it_is_added() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for _ in range(5):
        queue.add("a")
    assert await queue.get() == "a"
    assert len(queue) == 0


@pytest.mark.looptime
async def test_queue_runs_a_key_again_after_its_worker_when_it_was_added_meanwhile() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    await queue.get()
    queue.add("a")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), timeout=5)
    queue.done("a", failed=False)
    assert await asyncio.wait_for(queue.get(), timeout=1) == "a"


@pytest.mark.looptime
async def test_queue_spaces_the_runs_of_one_key() -> None:
    queue: WorkQueue[str] = WorkQueue()
    loop = asyncio.get_running_loop()
    queue.add("a")
    await queue.get()
    began = loop.time()
    queue.done("a", failed=False)
    queue.add("a")
    await queue.get()
    assert loop.time() - began >= SPACING_SEC


@pytest.mark.looptime
async def test_queue_backs_off_per_key_and_forgets_it_after_success() -> None:
    queue: WorkQueue[str] = WorkQueue()
    delays = []
    for _ in range(9):
        queue.add("a")
        await queue.get()
        delays.append(queue.done("a", failed=True))
    assert delays[:4] == [0.5, 1.0, 2.0, 4.0]
    assert delays[-1] == BACKOFF_MAX_SEC
    queue.add("a")
    await queue.get()
    assert queue.done("a", failed=False) == 0.0


@pytest.mark.looptime
async def test_queue_serves_other_keys_while_one_backs_off() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("bad")
    await queue.get()
    queue.done("bad", failed=True)
    queue.add("good")
    assert await asyncio.wait_for(queue.get(), timeout=0.1) == "good"
