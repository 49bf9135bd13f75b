"""Whole passes of the reconciler against an API server in memory."""

import asyncio
import base64
import copy
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from openclaw_core import names
from openclaw_core.kube import KubeError
from openclaw_core.wire import Stats
from openclaw_operator import reconcile
from openclaw_operator.reconcile import Reconciler
from openclaw_operator.telemetry import Telemetry
from openclaw_operator.training import Key
from tests.unit.operator.memory_kube import MemoryKube
from tests.unit.operator.trainings import IMAGES, UID, body, pod

KEY = Key("lab", "demo")
TRAINING = "/apis/openclawrl.io/v1alpha1/namespaces/lab/openclawtrainings/demo"
DEPLOYMENTS = "/apis/apps/v1/namespaces/lab/deployments"
SECRET = "/api/v1/namespaces/lab/secrets/judge-key"


def cluster(**spec: object) -> MemoryKube:
    kube = MemoryKube()
    kube.put(TRAINING, body(**spec))
    kube.put(SECRET, {"metadata": {"name": "judge-key"}, "data": {"key": base64.b64encode(b"real").decode()}})
    return kube


@asynccontextmanager
async def reconciler(kube: MemoryKube, enqueue: Callable[[Key], None] = lambda _: None) -> AsyncIterator[Reconciler]:
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
        found = Reconciler(kube, session, IMAGES, identity="op", tasks=tasks, enqueue=enqueue)
        yield found
        for key in list(found.states):
            found.forget(key)


async def settle(found: Reconciler, passes: int = 4) -> None:
    """Passes with time in between for the weight sync to write what it has to."""
    for _ in range(passes):
        found.invalidate(KEY)
        await found.reconcile(KEY)
        await asyncio.sleep(1)


def condition(kube: MemoryKube, kind: str) -> tuple[str, str, str]:
    found = next(item for item in kube.objects[TRAINING]["status"]["conditions"] if item["type"] == kind)
    return found["status"], found["reason"], found["message"]


@pytest.mark.looptime
async def test_first_pass_creates_every_child_with_its_owner() -> None:
    kube = cluster()
    async with reconciler(kube) as found:
        await settle(found)
    kinds = sorted({path.split("/")[-2] for path in kube.objects if path != TRAINING and path != SECRET})
    assert kinds == [
        "configmaps",
        "deployments",
        "leases",
        "persistentvolumeclaims",
        "poddisruptionbudgets",
        "rolebindings",
        "roles",
        "secrets",
        "serviceaccounts",
        "services",
    ]
    owned = [item for path, item in kube.objects.items() if "/events/" not in path and path not in (TRAINING, SECRET)]
    assert {item["metadata"]["ownerReferences"][0]["uid"] for item in owned} == {UID}


@pytest.mark.looptime
@pytest.mark.parametrize("plans_kept", [reconcile.PLANS_KEPT, 0])
async def test_idle_operator_writes_nothing(plans_kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "PLANS_KEPT", plans_kept)
    kube = cluster()
    async with reconciler(kube) as found:
        await settle(found)
        before = len(kube.writes())
        await settle(found)
        assert kube.writes()[before:] == []


@pytest.mark.looptime
async def test_plans_are_kept_of_the_latest_trainings_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "PLANS_KEPT", 1)
    kube, other = cluster(), Key("lab", "other")
    kube.put(TRAINING.replace("demo", "other"), body("other"))
    async with reconciler(kube) as found:
        for key in (KEY, other):
            await found.reconcile(key)
        assert [found.states[key].last is not None for key in (KEY, other)] == [False, True]
        assert (found.states[KEY].memory.hashed, found.states[other].memory.hashed != {}) == ({}, True)
        await found.reconcile(KEY)  # has its status to report, and needs no plan for that
        assert condition(kube, "SecretsResolved")[0] == "True"


@pytest.mark.looptime
async def test_training_never_carries_a_finalizer_or_a_kopf_annotation() -> None:
    kube = cluster()
    async with reconciler(kube) as found:
        await settle(found)
    metadata = kube.objects[TRAINING]["metadata"]
    assert "finalizers" not in metadata
    assert set(metadata["annotations"]) == {names.ANNOTATION_WEIGHT_SYNC}


@pytest.mark.looptime
async def test_drift_is_put_back_and_foreign_labels_stay() -> None:
    kube = cluster()
    async with reconciler(kube) as found:
        await settle(found)
        deployment = kube.objects[f"{DEPLOYMENTS}/demo-judge"]
        deployment["spec"]["replicas"] = 7
        deployment["metadata"]["labels"]["team"] = "rl"
        await settle(found, passes=1)
        deployment = kube.objects[f"{DEPLOYMENTS}/demo-judge"]
        assert (deployment["spec"]["replicas"], deployment["metadata"]["labels"]["team"]) == (1, "rl")


@pytest.mark.looptime
async def test_deleted_child_comes_back() -> None:
    kube = cluster()
    async with reconciler(kube) as found:
        await settle(found)
        del kube.objects["/api/v1/namespaces/lab/services/demo-gateway"]
        await settle(found, passes=1)
    assert "/api/v1/namespaces/lab/services/demo-gateway" in kube.objects


@pytest.mark.looptime
async def test_disabled_environment_is_pruned() -> None:
    kube = cluster(environmentHosting={"enabled": True})
    async with reconciler(kube) as found:
        await settle(found)
        assert f"{DEPLOYMENTS}/demo-environment" in kube.objects
        kube.objects[TRAINING]["spec"]["environmentHosting"] = {"enabled": False}
        await settle(found, passes=1)
    assert [path for path in kube.objects if path.endswith("demo-environment")] == []


@pytest.mark.looptime
async def test_missing_secret_blocks_only_its_user_and_is_healed_without_an_edit() -> None:
    kube = cluster()
    secret = kube.objects.pop(SECRET)
    async with reconciler(kube) as found:
        await settle(found)
        deployments = {path.rsplit("/", 1)[1] for path in kube.objects if path.startswith(DEPLOYMENTS)}
        assert deployments == {"demo-engine", "demo-gateway", "demo-trainer"}
        assert condition(kube, "SecretsResolved")[:2] == ("False", "SecretMissing")
        assert condition(kube, "JudgingReady")[:2] == ("False", "Blocked")
        assert kube.objects[TRAINING]["status"]["phase"] == "Blocked"
        assert next(event for event in events(kube) if event["reason"] == "SecretMissing")["type"] == "Warning"
        kube.put(SECRET, secret)
        await settle(found, passes=1)
        assert f"{DEPLOYMENTS}/demo-judge" in kube.objects
        assert condition(kube, "SecretsResolved")[:2] == ("True", "Resolved")
    assert len([event for event in events(kube) if event["reason"] == "SecretMissing"]) == 1


@pytest.mark.looptime
async def test_secret_that_goes_missing_leaves_the_running_component_alone() -> None:
    kube = cluster()
    async with reconciler(kube) as found:
        await settle(found)
        before = kube.objects[f"{DEPLOYMENTS}/demo-judge"]
        del kube.objects[SECRET]
        await settle(found, passes=1)
        assert kube.objects[f"{DEPLOYMENTS}/demo-judge"] == before


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("claim", "started", "waits"),
    [
        ("weights", {"demo-gateway", "demo-judge"}, "TrainingReady"),
        ("experience", {"demo-engine", "demo-judge", "demo-trainer"}, "ServingReady"),
    ],
)
async def test_missing_claim_is_named_and_nothing_on_it_is_started(claim: str, started: set[str], waits: str) -> None:
    kube = cluster(storage={claim: {"existingClaim": "shared"}})
    async with reconciler(kube) as found:
        await settle(found)
    deployments = {path.rsplit("/", 1)[1] for path in kube.objects if path.startswith(DEPLOYMENTS)}
    assert deployments == started
    status, reason, message = condition(kube, waits)
    assert (status, reason) == ("False", "ClaimMissing")
    assert f"spec.storage.{claim}.existingClaim: PersistentVolumeClaim 'shared' does not exist" in message


@pytest.mark.looptime
async def test_api_key_env_the_judge_needs_itself_starts_no_judge_until_it_is_another() -> None:
    kube = cluster()
    kube.objects[TRAINING]["spec"]["api"]["apiKeyEnv"] = "OPENCLAW_GATEWAY_TOKEN"
    async with reconciler(kube) as found:
        await settle(found)
        assert condition(kube, "ConfigValid")[:2] == ("False", "WrongApiKeyEnv")
        assert f"{DEPLOYMENTS}/demo-judge" not in kube.objects
        assert [event["type"] for event in events(kube) if event["reason"] == "WrongApiKeyEnv"] == ["Warning"]
        kube.objects[TRAINING]["spec"]["api"]["apiKeyEnv"] = "JUDGE_API_KEY"
        await settle(found, passes=1)
        assert condition(kube, "ConfigValid")[:2] == ("True", "Valid")
        assert f"{DEPLOYMENTS}/demo-judge" in kube.objects


@pytest.mark.looptime
async def test_invalid_spec_changes_no_child_and_says_why() -> None:
    kube = cluster()
    async with reconciler(kube) as found:
        await settle(found)
        before = {path: item for path, item in kube.objects.items() if path.startswith(DEPLOYMENTS)}
        kube.objects[TRAINING]["spec"]["queue"] = {"maxSize": 1}
        await settle(found, passes=1)
        assert {path: item for path, item in kube.objects.items() if path.startswith(DEPLOYMENTS)} == before
    status, reason, message = condition(kube, "ConfigValid")
    assert (status, reason) == ("False", "InvalidSpec")
    assert "spec.queue.maxSize" in message


@pytest.mark.looptime
async def test_object_of_the_same_name_that_is_not_ours_is_not_taken_over() -> None:
    kube = cluster()
    theirs = {"metadata": {"name": "demo-gateway", "namespace": "lab"}, "spec": {"selector": {"app": "theirs"}}}
    kube.put("/api/v1/namespaces/lab/services/demo-gateway", theirs)
    async with reconciler(kube) as found:
        await settle(found)
    assert kube.objects["/api/v1/namespaces/lab/services/demo-gateway"]["spec"] == {"selector": {"app": "theirs"}}
    assert "Service demo-gateway: exists already" in condition(kube, "ConfigValid")[2]


@pytest.mark.looptime
async def test_tokens_are_drawn_once_and_never_written_again() -> None:
    kube = cluster()
    path = "/api/v1/namespaces/lab/secrets/demo-internal"
    async with reconciler(kube) as found:
        await settle(found)
    async with reconciler(kube) as found:
        await settle(found)
    assert [write for write in kube.writes() if "demo-internal" in write[1]] == []
    assert len([write for write in kube.writes() if write == ("POST", path.rsplit("/", 1)[0])]) == 1


@pytest.mark.looptime
async def test_new_training_of_the_same_name_starts_from_nothing() -> None:
    kube = cluster()
    async with reconciler(kube) as found:
        await settle(found, passes=1)
        first = found.states[KEY]
        kube.objects = {TRAINING: body() | {"metadata": {**body()["metadata"], "uid": "another"}}}
        await settle(found, passes=1)
        assert found.states[KEY].uid == "another"
        assert found.states[KEY] is not first
        owners = kube.objects[f"{DEPLOYMENTS}/demo-engine"]["metadata"]["ownerReferences"]
        assert [owner["uid"] for owner in owners] == ["another"]


@pytest.mark.looptime
async def test_training_deleted_in_the_middle_of_a_pass_fails_nothing() -> None:
    kube = cluster()
    async with reconciler(kube) as found:
        await found.reconcile(KEY)
        found.states[KEY].telemetry = Telemetry(stats=Stats(served=1))
        del kube.objects[TRAINING]
        await found.reconcile(KEY)
        await found.reconcile(KEY)
        assert found.states == {}


@pytest.mark.looptime
async def test_deleted_training_is_forgotten() -> None:
    kube = cluster()
    async with reconciler(kube) as found:
        await settle(found, passes=1)
        del kube.objects[TRAINING]
        found.invalidate(KEY)
        await found.reconcile(KEY)
        assert found.states == {}


def events(kube: MemoryKube) -> list[dict[str, object]]:
    return [item for path, item in kube.objects.items() if "/events/" in path]


def tell(found: Reconciler, kube: MemoryKube, kind: str, path: str, event: str = "MODIFIED") -> None:
    """What a watch would tell of an object as it is now."""
    found.told(KEY, kind, event, copy.deepcopy(kube.objects[path]))


@pytest.mark.looptime
async def test_what_the_watches_told_is_not_asked_for() -> None:
    kube = cluster()
    async with reconciler(kube) as found:
        await settle(found)
        asked = len(kube.requests)
        path = "/api/v1/namespaces/lab/pods/demo-judge-0"
        kube.put(path, pod("judge"))
        tell(found, kube, "Pod", path, "ADDED")
        await found.reconcile(KEY)
        assert kube.objects[TRAINING]["status"]["judging"]["desired"] == 1
        assert names.LABEL_COMPONENT in kube.objects[TRAINING]["status"]["serving"]["selector"]
        assert [path for method, path in kube.requests[asked:] if method == "GET" and "/secrets/" not in path] == []


@pytest.mark.looptime
async def test_drift_that_a_watch_tells_of_is_put_back() -> None:
    kube = cluster()
    async with reconciler(kube) as found:
        await settle(found)
        path = f"{DEPLOYMENTS}/demo-judge"
        kube.put(path, kube.objects[path] | {"spec": kube.objects[path]["spec"] | {"replicas": 7}})
        tell(found, kube, "Deployment", path)
        await found.reconcile(KEY)
        assert kube.objects[path]["spec"]["replicas"] == 1


@pytest.mark.looptime
async def test_child_whose_deletion_a_watch_tells_of_comes_back() -> None:
    kube = cluster()
    async with reconciler(kube) as found:
        await settle(found)
        path = "/api/v1/namespaces/lab/services/demo-judge"
        gone = kube.objects.pop(path)
        found.told(KEY, "Service", "DELETED", kube.put("/elsewhere", gone))
        await found.reconcile(KEY)
        assert path in kube.objects


@pytest.mark.looptime
async def test_echo_of_an_own_write_is_no_reason_for_a_pass() -> None:
    kube = cluster()
    async with reconciler(kube) as found:
        await settle(found)
        for kind, path in ((names.KIND, TRAINING), ("Deployment", f"{DEPLOYMENTS}/demo-judge")):
            assert not found.told(KEY, kind, "MODIFIED", copy.deepcopy(kube.objects[path]))


@pytest.mark.looptime
async def test_edit_that_comes_between_look_and_status_is_not_lost() -> None:
    kube = cluster()
    asked: list[Key] = []
    async with reconciler(kube, asked.append) as found:
        await settle(found)
        state = found.states[KEY]
        state.telemetry = Telemetry(stats=Stats(served=1))
        edited = kube.objects[TRAINING]
        edited["spec"]["rewardJudging"] = {"replicas": 3}
        edited["metadata"]["generation"] += 1
        kube.put(TRAINING, edited)
        asked.clear()
        await found.reconcile(KEY)  # only new numbers to report, as far as it knows
        assert asked == [KEY]
        await found.reconcile(KEY)
        assert kube.objects[f"{DEPLOYMENTS}/demo-judge"]["spec"]["replicas"] == 3


@pytest.mark.looptime
async def test_failed_pass_looks_at_everything_again() -> None:
    kube = cluster()
    async with reconciler(kube) as found:
        await settle(found)
        del kube.objects["/api/v1/namespaces/lab/services/demo-judge"]
        kube.fail["/api/v1/namespaces/lab/pods"] = KubeError(503, "ServiceUnavailable", "gone")
        found.invalidate(KEY)
        with pytest.raises(KubeError):
            await found.reconcile(KEY)
        kube.fail.clear()
        await found.reconcile(KEY)
        assert "/api/v1/namespaces/lab/services/demo-judge" in kube.objects


@pytest.mark.looptime
async def test_training_managed_by_another_controller_is_left_alone() -> None:
    kube = cluster(managedBy="kueue.x-k8s.io/multikueue")
    async with reconciler(kube) as found:
        await settle(found)
        assert found.states == {}
    assert kube.writes() == []


@pytest.mark.looptime
async def test_queue_name_reaches_what_makes_pods_and_nothing_else() -> None:
    kube = cluster()
    kube.objects[TRAINING]["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team", "other": "x"}
    async with reconciler(kube) as found:
        await settle(found)
    labelled = {path for path, item in kube.objects.items() if "kueue.x-k8s.io/queue-name" in labels_of(item)}
    assert {path for path in labelled if path != TRAINING} == {p for p in kube.objects if p.startswith(DEPLOYMENTS)}


def labels_of(item: dict[str, Any]) -> dict[str, str]:
    return item["metadata"].get("labels") or {}


def rank(number: int, revision: str | None) -> dict[str, Any]:
    labels = {names.LABEL_TRAINING: "demo", names.LABEL_COMPONENT: "trainer"}
    notes = {names.ANNOTATION_REVISION: revision}
    return {"metadata": {"name": f"demo-trainer-{number}", "labels": labels, "annotations": notes}, "status": {}}


@pytest.mark.looptime
async def test_trainer_of_several_pods_is_a_set_whose_old_pods_all_go_before_new_ones_come() -> None:
    kube = cluster(policyTraining={"device": "cpu", "nodes": 3})
    sets, pods = "/apis/apps/v1/namespaces/lab/statefulsets/demo-trainer", "/api/v1/namespaces/lab/pods"
    async with reconciler(kube) as found:
        await settle(found)
        assert f"{DEPLOYMENTS}/demo-trainer" not in kube.objects
        assert kube.objects[sets]["spec"]["replicas"] == 3
        revision = kube.objects[sets]["spec"]["template"]["metadata"]["annotations"][names.ANNOTATION_REVISION]
        for number in range(3):
            kube.put(f"{pods}/demo-trainer-{number}", rank(number, revision))
        await settle(found)
        assert kube.objects[sets]["spec"]["replicas"] == 3
        kube.objects[TRAINING]["spec"]["policyTraining"]["learningRate"] = 0.5
        await settle(found, passes=1)
        assert kube.objects[sets]["spec"]["replicas"] == 0
        for number in range(3):
            del kube.objects[f"{pods}/demo-trainer-{number}"]
        await settle(found, passes=1)
        assert kube.objects[sets]["spec"]["replicas"] == 3


@pytest.mark.looptime
async def test_trainer_becomes_a_set_and_a_deployment_again() -> None:
    kube = cluster(policyTraining={"device": "cpu"})
    sets = "/apis/apps/v1/namespaces/lab/statefulsets/demo-trainer"
    async with reconciler(kube) as found:
        await settle(found)
        kube.objects[TRAINING]["spec"]["policyTraining"]["nodes"] = 2
        await settle(found)
        assert (sets in kube.objects, f"{DEPLOYMENTS}/demo-trainer" in kube.objects) == (True, False)
        kube.objects[TRAINING]["spec"]["policyTraining"]["nodes"] = 1
        await settle(found)
        assert (sets in kube.objects, f"{DEPLOYMENTS}/demo-trainer" in kube.objects) == (False, True)
        assert "/api/v1/namespaces/lab/services/demo-ranks" not in kube.objects
