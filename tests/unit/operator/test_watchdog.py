"""The watchdog: a watch that stays behind a list ends the process; one that lags once, or an API outage, does not."""

import asyncio

import pytest

from openclaw_core.kube import KubeError
from openclaw_operator.training import Key
from openclaw_operator.watchdog import LOOK_EVERY_SEC, SilentWatchError, Watchdog
from tests.unit.operator.memory_kube import MemoryKube
from tests.unit.operator.trainings import body

TRAINING = "/apis/openclawrl.io/v1alpha1/namespaces/lab/openclawtrainings/demo"
KEY = Key("lab", "demo")


def cluster() -> tuple[MemoryKube, str]:
    kube = MemoryKube()
    return kube, kube.put(TRAINING, body())["metadata"]["resourceVersion"]


async def watched(dog: Watchdog, looks: float) -> None:
    """Let it look so many times; raises what it raises."""
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(dog.run(), LOOK_EVERY_SEC * looks + 1)


@pytest.mark.looptime
async def test_watch_that_tells_of_every_change_is_left_alone() -> None:
    kube, version = cluster()
    dog = Watchdog(kube, ("lab",))
    dog.heard(KEY, version, False)
    await watched(dog, 5)


@pytest.mark.looptime
async def test_watch_that_stays_behind_ends_the_process() -> None:
    kube, version = cluster()
    dog = Watchdog(kube, ("lab",))
    dog.heard(KEY, version, False)
    kube.put(TRAINING, body())
    with pytest.raises(SilentWatchError, match="lab/demo changed"):
        await asyncio.wait_for(dog.run(), LOOK_EVERY_SEC * 3)


@pytest.mark.looptime
async def test_watch_that_lags_for_one_look_is_left_alone() -> None:
    kube, version = cluster()
    dog = Watchdog(kube, ("lab",))
    looking = asyncio.create_task(watched(dog, 5))
    await asyncio.sleep(LOOK_EVERY_SEC * 1.5)
    dog.heard(KEY, version, False)
    await looking


@pytest.mark.looptime
async def test_api_server_that_does_not_answer_proves_nothing() -> None:
    kube, _ = cluster()
    dog = Watchdog(kube, ("lab",))
    kube.fail["/apis/openclawrl.io"] = KubeError(503, "ServiceUnavailable", "gone")
    await watched(dog, 5)


@pytest.mark.looptime
async def test_cluster_without_trainings_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    kube = MemoryKube()
    monkeypatch.setattr(kube, "_get", lambda *_: {"items": None, "metadata": {"resourceVersion": "0"}})
    await watched(Watchdog(kube), 3)


@pytest.mark.looptime
async def test_deleted_training_is_forgotten() -> None:
    kube, version = cluster()
    dog = Watchdog(kube, ("lab",))
    dog.heard(KEY, version, False)
    del kube.objects[TRAINING]
    dog.heard(KEY, version, True)
    await watched(dog, 3)
