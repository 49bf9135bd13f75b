"""The lead is kept while the main loop is busy, and its loss ends a process that does not end by itself."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from openclaw_core.kube import Kube
from openclaw_operator import election as module
from openclaw_operator import leader
from openclaw_operator.election import Election
from openclaw_operator.leader import Leader, LeadershipLostError
from tests.unit.operator.memory_kube import MemoryKube

PATH = "/apis/coordination.k8s.io/v1/namespaces/ops/leases/openclaw-operator"


def contender(identity: str) -> Callable[[Kube], Leader]:
    return partial(Leader, namespace="ops", name="openclaw-operator", identity=identity)


class Connected(MemoryKube):
    """A client whose connection is the thread's own."""

    async def __aenter__(self) -> "Connected":
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An election in tenths of seconds: its thread has a clock of its own."""
    monkeypatch.setattr(leader, "RETRY_SEC", 0.02)
    monkeypatch.setattr(leader, "RENEW_WITHIN_SEC", 0.4)
    monkeypatch.setattr(module, "LAST_WORDS_SEC", 0.3)
    yield


@contextlib.asynccontextmanager
async def running(found: Election):  # type: ignore[no-untyped-def]
    task = asyncio.create_task(found.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=5)


async def test_lead_is_kept_while_the_main_loop_is_busy() -> None:
    kube = Connected()
    found = Election(contender("me"), lambda: kube)
    async with running(found) as task:
        await asyncio.wait_for(found.leading.wait(), 5)
        before = kube.objects[PATH]["metadata"]["resourceVersion"]
        time.sleep(1.0)  # noqa: ASYNC251 - longer than a leader may go without renewal
        assert not task.done()
        assert int(kube.objects[PATH]["metadata"]["resourceVersion"]) > int(before) + 5
    await found.release(kube)
    assert kube.objects[PATH]["spec"]["holderIdentity"] == ""


async def test_loss_of_the_lead_ends_the_election_and_spares_who_ends_by_himself() -> None:
    kube, ended = Connected(), threading.Event()
    found = Election(contender("me"), lambda: kube, lambda _: ended.set())
    async with running(found) as task:
        await asyncio.wait_for(found.leading.wait(), 5)
        kube.objects[PATH]["spec"] |= {"holderIdentity": "another", "renewTime": "2026-01-01T00:00:00.000000Z"}
        with pytest.raises(LeadershipLostError, match="another leads now"):
            await asyncio.wait_for(task, 5)
    assert not ended.is_set()


async def test_loss_of_the_lead_ends_a_process_whose_loop_hangs() -> None:
    kube, ended = Connected(), threading.Event()
    found = Election(contender("me"), lambda: kube, lambda _: ended.set())
    async with running(found):
        await asyncio.wait_for(found.leading.wait(), 5)
        kube.objects[PATH]["spec"] |= {"holderIdentity": "another", "renewTime": "2026-01-01T00:00:00.000000Z"}
        assert ended.wait(5)


async def test_standby_that_is_stopped_leaves_the_lease_alone() -> None:
    kube = Connected()
    holder = contender("another")(kube)
    await holder._attempt()
    found = Election(contender("me"), lambda: kube)
    async with running(found):
        await asyncio.sleep(0.2)
        assert not found.leading.is_set()
    await found.release(kube)
    assert kube.objects[PATH]["spec"]["holderIdentity"] == "another"
