"""What the operator finds out by the clock alone: no watch tells of a mended Secret, claim or endpoint."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from openclaw_core import names
from openclaw_core.wire import JudgeState, Stats
from openclaw_operator import periodic
from openclaw_operator.periodic import Periodic
from openclaw_operator.queue import WorkQueue
from openclaw_operator.reconcile import Reconciler, State
from openclaw_operator.telemetry import Sources, Telemetry
from openclaw_operator.training import Key
from tests.unit.operator.memory_kube import MemoryKube
from tests.unit.operator.trainings import IMAGES, body, pod

pytestmark = [pytest.mark.looptime]
KEY = Key("lab", "demo")
TRAINING = "/apis/openclawrl.io/v1alpha1/namespaces/lab/openclawtrainings/demo"
DEPLOYMENTS = "/apis/apps/v1/namespaces/lab/deployments"
SECRET = "/api/v1/namespaces/lab/secrets/judge-key"
CLAIM = "/api/v1/namespaces/lab/persistentvolumeclaims/shared"
PODS = "/api/v1/namespaces/lab/pods"
HEALED_WITHIN_SEC = 20.0
JUDGE_PROBES_EVERY_SEC = 8.0
"""`openclaw_judge.worker.PROBE_SEC`: what the judge itself takes of those 20 s when an endpoint is mended."""


def cluster(**spec: object) -> MemoryKube:
    kube = MemoryKube()
    kube.put(TRAINING, body(**spec))
    kube.put(SECRET, key("sk-real-0123"))
    return kube


def key(value: str) -> dict[str, Any]:
    return {"metadata": {"name": "judge-key"}, "data": {"key": base64.b64encode(value.encode()).decode()}}


@asynccontextmanager
async def operator(kube: MemoryKube) -> AsyncIterator[Reconciler]:
    """Reconciler, work queue and clock, wired as `service` does, without any watch."""
    queue: WorkQueue[Key] = WorkQueue()
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
        found = Reconciler(kube, session, IMAGES, identity="op", tasks=tasks, enqueue=queue.add)

        def changed(key: Key, afresh: bool) -> None:
            if afresh:
                found.invalidate(key)
            queue.add(key)

        async def work() -> None:
            while True:
                key = await queue.get()
                await found.reconcile(key)
                queue.done(key, failed=False)

        loops = [tasks.create_task(work()), tasks.create_task(Periodic(found, session, changed).run())]
        queue.add(KEY)
        await asyncio.sleep(5)
        changed(KEY, True)  # what was created is seen
        await asyncio.sleep(5)
        yield found
        for loop in loops:
            loop.cancel()
        for known in list(found.states):
            found.forget(known)


def condition(kube: MemoryKube, kind: str) -> tuple[str, str]:
    found = next(item for item in kube.objects[TRAINING]["status"]["conditions"] if item["type"] == kind)
    return found["status"], found["reason"]


async def until(true: Callable[[], bool], seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - objects in memory tell nobody
            await asyncio.sleep(0.1)


async def looked_at(kube: MemoryKube, path: str) -> None:
    """Right after a look at `path`: whatever changes now is seen by the next one, at the latest moment there is."""
    seen = kube.requests.count(("GET", path))
    await until(lambda: kube.requests.count(("GET", path)) > seen, 60)


@pytest.mark.parametrize(
    ("fault", "reason"), [(None, "SecretMissing"), (key(""), "KeyEmpty"), (key("changeme"), "KeyPlaceholder")]
)
async def test_mended_secret_starts_its_component_within_20_seconds(fault: dict[str, Any] | None, reason: str) -> None:
    kube = cluster()
    del kube.objects[SECRET]
    if fault is not None:
        kube.put(SECRET, fault)
    async with operator(kube):
        assert condition(kube, "SecretsResolved") == ("False", reason)
        assert f"{DEPLOYMENTS}/demo-judge" not in kube.objects
        await looked_at(kube, SECRET)
        kube.put(SECRET, key("sk-real-0123"))
        await until(lambda: f"{DEPLOYMENTS}/demo-judge" in kube.objects, HEALED_WITHIN_SEC)
        assert condition(kube, "SecretsResolved") == ("True", "Resolved")


async def test_rotated_secret_reaches_its_component_within_20_seconds() -> None:
    kube = cluster()

    def planned() -> dict[str, str]:
        found = {path.rsplit("-", 1)[1]: item for path, item in kube.objects.items() if path.startswith(DEPLOYMENTS)}
        notes = {name: item["spec"]["template"]["metadata"]["annotations"] for name, item in found.items()}
        return {name: note.get(names.ANNOTATION_SECRETS, "") for name, note in notes.items()}

    async with operator(kube):
        before = planned()
        await looked_at(kube, SECRET)
        kube.put(SECRET, key("sk-other-4567"))
        await until(lambda: planned() != before, HEALED_WITHIN_SEC)
        assert {name for name, secrets in planned().items() if secrets != before[name]} == {"judge"}


@pytest.mark.parametrize("section", ["weights", "experience"])
async def test_claim_that_appears_starts_what_waited_for_it_within_20_seconds(section: str) -> None:
    waiting = {"weights": ["demo-engine", "demo-trainer"], "experience": ["demo-gateway"]}[section]
    kube = cluster(storage={section: {"existingClaim": "shared"}})
    async with operator(kube):
        assert [name for name in waiting if f"{DEPLOYMENTS}/{name}" in kube.objects] == []
        await looked_at(kube, CLAIM)
        kube.put(CLAIM, {"metadata": {"name": "shared", "namespace": "lab"}})
        await until(lambda: all(f"{DEPLOYMENTS}/{name}" in kube.objects for name in waiting), HEALED_WITHIN_SEC)


def start_pods(kube: MemoryKube) -> None:
    """A ready pod of the planned revision for every Deployment; without an address, so that nobody talks to it."""
    for path, deployment in list(kube.objects.items()):
        if path.startswith(DEPLOYMENTS):
            component = path.rsplit("-", 1)[1]
            made = pod(component, podIP=None)
            made["metadata"]["annotations"] = deployment["spec"]["template"]["metadata"]["annotations"]
            kube.put(f"{PODS}/{made['metadata']['name']}", made)


class Answers:
    """Stands for what pods answer: `telemetry.poll` gives `now`, and counts."""

    def __init__(self) -> None:
        self.now, self.asked = Telemetry(), 0
        self.sources = Sources()
        """Who was asked last."""

    async def poll(self, _: object, sources: Sources, __: object) -> Telemetry:
        self.asked += 1
        self.sources = sources
        return self.now


def judge(*, ok: bool, error: str | None = None) -> Telemetry:
    return Telemetry(judges=(JudgeState(ok=ok, error=error, since=0.0, counts={"requests": 4}),))


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    found = Answers()
    monkeypatch.setattr(periodic.telemetry, "poll", found.poll)
    return found


async def test_word_of_the_judge_shows_soon_enough_for_an_endpoint_to_be_healed_within_20_seconds(
    answers: Answers,
) -> None:
    kube = cluster()
    async with operator(kube) as found:
        start_pods(kube)
        found.invalidate(KEY)
        answers.now = judge(ok=False, error="HTTP 401: wrong key")
        await until(lambda: condition(kube, "JudgingReady") == ("False", "EndpointFailing"), HEALED_WITHIN_SEC)
        asked = answers.asked
        await until(lambda: answers.asked > asked, 60)
        answers.now = judge(ok=True)
        left = HEALED_WITHIN_SEC - JUDGE_PROBES_EVERY_SEC
        await until(lambda: condition(kube, "JudgingReady") == ("True", "AllPodsReady"), left)


async def test_numbers_that_change_all_the_time_are_written_at_most_every_10_seconds(answers: Answers) -> None:
    kube = cluster()
    async with operator(kube):

        def writes() -> int:
            return kube.requests.count(("PATCH", f"{TRAINING}/status"))

        before, polled = writes(), answers.asked
        for served in range(600):
            answers.now = Telemetry(stats=Stats(served=served))
            await asyncio.sleep(0.1)
        assert 5 <= writes() - before <= 7
        assert answers.asked - polled <= 7
        assert kube.objects[TRAINING]["status"]["training"]["samples"]["served"] > 400


async def test_training_that_never_answers_is_asked_ever_more_seldom_until_it_does(
    answers: Answers,
) -> None:
    kube = cluster()
    async with operator(kube) as found:
        kube.put(f"{PODS}/demo-judge-1", pod("judge", podIP="10.0.0.9"))
        found.invalidate(KEY)
        await found.reconcile(KEY)
        await asyncio.sleep(300)
        asked = answers.asked
        await asyncio.sleep(640)
        assert 3 <= answers.asked - asked <= 5
        assert answers.sources == Sources(judges=("10.0.0.9",), gateway_token=answers.sources.gateway_token)
        answers.now = Telemetry(stats=Stats(served=3), answered=True)
        await until(lambda: answers.asked > asked + 5, 180)
        asked = answers.asked
        await asyncio.sleep(100)
        assert 8 <= answers.asked - asked <= 11


async def test_training_that_never_answered_is_asked_soon_when_a_pod_of_it_becomes_ready(answers: Answers) -> None:
    kube = cluster()
    async with operator(kube) as found:
        for number in range(3):
            kube.put(f"{PODS}/demo-judge-{number}", pod("judge", podIP=f"10.0.0.{number}"))
            found.invalidate(KEY)
            await found.reconcile(KEY)
            asked = answers.asked
            await asyncio.sleep(12.5)
            assert answers.asked > asked
            await asyncio.sleep(300)


async def test_resyncs_of_many_trainings_never_come_faster_than_their_rate_and_leave_nobody_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look at everything is a dozen lists: the first ones of all trainings must not come in one go."""
    monkeypatch.setattr(periodic, "RESYNC_EVERY_SEC", 60.0)
    monkeypatch.setattr(periodic, "RESYNCS_PER_SEC", 0.5)
    kube = cluster()
    resyncs: list[tuple[float, Key]] = []
    loop = asyncio.get_running_loop()
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
        reconciler = Reconciler(kube, session, IMAGES, identity="op", tasks=tasks, enqueue=lambda _: None)
        for number in range(60):
            name = Key("lab", f"t{number}")
            reconciler.states[name] = State(name, str(number))

        def changed(key: Key, change: periodic.Change) -> None:
            if change is periodic.Change.UNKNOWN:
                resyncs.append((loop.time(), key))

        began = loop.time()
        ticking = tasks.create_task(Periodic(reconciler, session, changed).run())
        await asyncio.sleep(420)
        ticking.cancel()
    moments = [moment - began for moment, _ in resyncs]
    for later in range(10, len(moments)):
        assert moments[later] - moments[later - 10] >= 10 / periodic.RESYNCS_PER_SEC - 2
    assert len({key for _, key in resyncs}) == 60


def test_of_a_silent_training_one_part_is_asked() -> None:
    everybody = Sources(("g0", "g1"), ("t0",), ("j0", "j1"), "token")
    assert everybody.one() == Sources(("g0",), (), (), "token")
    assert Sources((), ("t0",), ("j0",)).one() == Sources((), ("t0",), ())
    assert Sources((), (), ("j0", "j1")).one() == Sources((), (), ("j0",))
