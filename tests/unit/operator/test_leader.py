import asyncio

import pytest

from openclaw_core.kube import KubeError
from openclaw_operator.leader import DURATION_SEC, RENEW_WITHIN_SEC, Leader, LeadershipLostError
from tests.unit.operator.memory_kube import MemoryKube

PATH = "/apis/coordination.k8s.io/v1/namespaces/ops/leases/openclaw-operator"


def contender(kube: MemoryKube, name: str) -> Leader:
    return Leader(kube, "ops", "openclaw-operator", name)


@pytest.mark.looptime
async def test_first_contender_leads_and_a_second_waits() -> None:
    kube = MemoryKube()
    first, second = contender(kube, "a"), contender(kube, "b")
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(first.run()), group.create_task(second.run())]
        await asyncio.sleep(60)
        assert (first.leading.is_set(), second.leading.is_set()) == (True, False)
        for task in running:
            task.cancel()


@pytest.mark.looptime
async def test_standby_takes_over_once_the_leader_stops_renewing() -> None:
    kube = MemoryKube()
    first, second = contender(kube, "a"), contender(kube, "b")
    leading = asyncio.create_task(first.run())
    waiting = asyncio.create_task(second.run())
    await asyncio.sleep(5)
    leading.cancel()
    died = asyncio.get_running_loop().time()
    await asyncio.wait_for(second.leading.wait(), timeout=60)
    assert DURATION_SEC - 5 <= asyncio.get_running_loop().time() - died <= DURATION_SEC + 5
    assert kube.objects[PATH]["spec"]["leaseTransitions"] == 1
    waiting.cancel()


@pytest.mark.looptime
async def test_clean_stop_hands_over_at_once() -> None:
    kube = MemoryKube()
    first, second = contender(kube, "a"), contender(kube, "b")
    leading = asyncio.create_task(first.run())
    await asyncio.sleep(1)
    waiting = asyncio.create_task(second.run())
    await asyncio.sleep(1)
    leading.cancel()
    await first.release()
    await asyncio.wait_for(second.leading.wait(), timeout=3)
    waiting.cancel()


@pytest.mark.looptime
async def test_leader_that_cannot_renew_ends_before_the_lease_does() -> None:
    kube = MemoryKube()
    leader = contender(kube, "a")
    running = asyncio.create_task(leader.run())
    await asyncio.sleep(3)
    kube.fail[PATH] = KubeError(503, "Unavailable", "down")
    began = asyncio.get_running_loop().time()
    with pytest.raises(LeadershipLostError):
        await running
    assert RENEW_WITHIN_SEC <= asyncio.get_running_loop().time() - began + 2 < DURATION_SEC


@pytest.mark.looptime
async def test_leader_that_finds_another_holder_ends_at_once() -> None:
    kube = MemoryKube()
    running = asyncio.create_task(contender(kube, "a").run())
    await asyncio.sleep(1)
    kube.objects[PATH]["spec"] |= {"holderIdentity": "b", "renewTime": "2026-01-01T00:00:00.000000Z"}
    with pytest.raises(LeadershipLostError, match="b leads now"):
        await running
