"""The installed operator with trainings of stand-ins: children, drift, Secrets, rollouts, suspension, removal."""

import json
import time

import pytest

from openclaw_core import names
from tests.cluster.lab import OPERATOR_NAMESPACE, RELEASE, CommandError, Lab, helm_test, kubectl, training, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def demo(lab: Lab) -> str:
    """A running training."""
    lab.secret("judge-key", key="sk-real-0123")
    lab.apply(
        training(api={"baseUrl": "http://judge.invalid/v1", "apiKeySecretRef": {"name": "judge-key", "key": "key"}})
    )
    lab.until_phase("demo", "Running")
    return "demo"


@pytest.mark.usefixtures("operator")
def test_helm_test_of_the_installed_operator_succeeds() -> None:
    assert "Succeeded" in helm_test()


def uids(lab: Lab, training_name: str) -> dict[str, set[str]]:
    return {
        component: {pod["metadata"]["uid"] for pod in lab.pods(training_name, component)}
        for component in names.COMPONENTS
    }


def test_training_runs_with_every_child_owned_by_it(lab: Lab, demo: str) -> None:
    uid = lab.get(names.PLURAL, demo)["metadata"]["uid"]
    kinds = "deploy,svc,sa,role,rolebinding,cm,pvc,lease"
    children = lab.items(kinds, f"{names.LABEL_TRAINING}={demo}")
    assert {item["metadata"]["ownerReferences"][0]["uid"] for item in children} == {uid}
    found = {(item["kind"], item["metadata"]["name"]) for item in children}
    assert {
        ("Deployment", "demo-engine"),
        ("Service", "demo-gateway"),
        ("ServiceAccount", "demo-trainer"),
        ("Role", "demo-gateway"),
        ("PersistentVolumeClaim", "demo-weights"),
        ("PersistentVolumeClaim", "demo-experience"),
        ("ConfigMap", "demo-judge"),
        ("ConfigMap", "demo-target"),
        ("Lease", "demo-weight-sync"),
        ("Lease", "demo-published"),
    } <= found
    assert set(lab.get("secret", "demo-internal")["data"]) == {"gateway", "agent"}


def test_columns_tell_the_state(lab: Lab, demo: str) -> None:
    del demo
    header, row = lab.run("get", "oct", "demo").strip().splitlines()
    assert header.split() == [
        "NAME", "PHASE", "READY", "SERVING", "JUDGES", "TRAINER", "WEIGHTS", "STEP", "PAUSED", "AGE",
    ]  # fmt: skip
    assert row.split()[:7] == ["demo", "Running", "True", "1/1", "1/1", "1/1", "0-00000000"]


def test_idle_training_is_not_written(lab: Lab, demo: str) -> None:
    def versions() -> dict[str, str]:
        items = lab.items(f"{names.PLURAL},deploy,svc,cm,role,pvc,lease")
        return {f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["resourceVersion"] for item in items}

    del demo
    time.sleep(5)
    before = versions()
    time.sleep(25)
    assert versions() == before


def test_training_carries_no_finalizer_and_no_kopf_annotation(lab: Lab, demo: str) -> None:
    metadata = lab.get(names.PLURAL, demo)["metadata"]
    assert "finalizers" not in metadata
    assert [key for key in metadata.get("annotations", {}) if "kopf" in key] == []


def test_drift_is_put_back_while_foreign_labels_and_restarts_stay(lab: Lab, demo: str) -> None:
    del demo
    lab.run("label", "deploy", "demo-judge", "team=rl")
    lab.run("set", "env", "deploy/demo-judge", "HOME=/elsewhere")
    lab.patch("svc", "demo-judge", {"spec": {"ports": [{"name": "http", "port": 9999}]}})
    lab.run("delete", "cm/demo-judge", "role/demo-trainer")

    def home() -> str:
        env = lab.get("deploy", "demo-judge")["spec"]["template"]["spec"]["containers"][0]["env"]
        return next(item["value"] for item in env if item["name"] == "HOME")

    until("HOME is put back", lambda: home() == "/tmp", 20)
    until(
        "the port is put back", lambda: 8200 in [p["port"] for p in lab.get("svc", "demo-judge")["spec"]["ports"]], 20
    )
    until("the ConfigMap is back", lambda: lab.get("cm", "demo-judge"), 20)
    until("the Role is back", lambda: lab.get("role", "demo-trainer"), 20)
    assert lab.get("deploy", "demo-judge")["metadata"]["labels"]["team"] == "rl"

    lab.run("rollout", "restart", "deploy/demo-trainer")
    time.sleep(3)
    template = lab.get("deploy", "demo-trainer")["spec"]["template"]["metadata"]
    assert "kubectl.kubernetes.io/restartedAt" in template["annotations"]
    lab.until_phase("demo", "Running")


def test_only_the_edited_component_restarts(lab: Lab, demo: str) -> None:
    before = uids(lab, demo)
    lab.patch(names.PLURAL, demo, {"spec": {"rewardJudging": {"judgeTimeoutSec": 31}}})
    until(
        "judges are replaced", lambda: uids(lab, demo)["judge"].isdisjoint(before["judge"]) and lab.pods(demo, "judge")
    )
    lab.until_phase(demo, "Running")
    after = uids(lab, demo)
    assert {name: after[name] for name in names.COMPONENTS if name != "judge"} == {
        name: before[name] for name in names.COMPONENTS if name != "judge"
    }


def test_rotated_key_rolls_exactly_its_users(lab: Lab, demo: str) -> None:
    before = uids(lab, demo)
    lab.secret("judge-key", key="sk-other-4567")
    until(
        "judges are replaced",
        lambda: lab.pods(demo, "judge") and uids(lab, demo)["judge"].isdisjoint(before["judge"]),
        60,
    )
    lab.until_phase(demo, "Running")
    after = uids(lab, demo)
    assert {name for name in names.COMPONENTS if after[name] != before[name]} == {"judge"}


def test_lost_pod_shows_and_comes_back(lab: Lab, demo: str) -> None:
    lab.run("delete", "pod", lab.pods(demo, "engine")[0]["metadata"]["name"], "--wait=false")
    until("Ready goes back", lambda: lab.condition(demo, "Ready")["status"] == "False", 20, every=0.05)
    lab.until_phase(demo, "Running")


def test_suspend_waits_for_the_pods_and_resume_goes_on(lab: Lab, demo: str) -> None:
    tokens = lab.get("secret", "demo-internal")["data"]
    lab.patch(names.PLURAL, demo, {"spec": {"suspend": True}})
    lab.until_phase(demo, "Suspended")
    assert [pods for pods in uids(lab, demo).values() if pods] == []
    assert lab.get("pvc", "demo-weights")["status"]["phase"] == "Bound"
    lab.patch(names.PLURAL, demo, {"spec": {"suspend": False}})
    lab.until_phase(demo, "Running")
    assert lab.get("secret", "demo-internal")["data"] == tokens


@pytest.mark.parametrize(
    ("secret", "reason", "words"),
    [
        (None, "SecretMissing", "Secret 'late-key' does not exist; create it"),
        ({"other": "x"}, "KeyMissing", "Secret 'late-key' has no key 'key'"),
        ({"key": ""}, "KeyEmpty", "key 'key' of Secret 'late-key' is empty"),
        ({"key": "changeme"}, "KeyPlaceholder", "holds a placeholder"),
    ],
)
def test_unusable_key_starts_nothing_half_and_heals_within_20_seconds(
    lab: Lab, secret: dict[str, str] | None, reason: str, words: str
) -> None:
    name = f"late-{reason.lower()}"
    lab.run("delete", "secret", "late-key", "--ignore-not-found")
    if secret is not None:
        lab.secret("late-key", **secret)
    ref = {"baseUrl": "http://judge.invalid/v1", "apiKeySecretRef": {"name": "late-key", "key": "key"}}
    lab.apply(training(name, api=ref))
    until("the condition says so", lambda: lab.condition(name, "SecretsResolved").get("reason") == reason, 20)
    assert words in lab.condition(name, "SecretsResolved")["message"]
    assert "spec.api.apiKeySecretRef" in lab.condition(name, "SecretsResolved")["message"]
    assert lab.status(name)["phase"] == "Blocked"
    assert lab.get("deploy", f"{name}-judge") == {}
    until(
        "a Warning event", lambda: [e for e in lab.events(name) if (e["type"], e["reason"]) == ("Warning", reason)], 10
    )
    lab.secret("late-key", key="sk-real-0123")
    until("healed", lambda: lab.condition(name, "SecretsResolved").get("status") == "True", 20)
    until("the judge starts", lambda: lab.get("deploy", f"{name}-judge"), 5)
    lab.run("delete", names.PLURAL, name)


def test_missing_claim_is_named_and_heals_within_20_seconds(lab: Lab) -> None:
    body = training("claimed")
    body["spec"]["storage"] = {"weights": {"existingClaim": "shared"}, "experience": {"size": "1Mi"}}
    lab.apply(body)
    until(
        "the condition says so", lambda: lab.condition("claimed", "TrainingReady").get("reason") == "ClaimMissing", 20
    )
    assert "spec.storage.weights.existingClaim" in lab.condition("claimed", "TrainingReady")["message"]
    assert lab.get("deploy", "claimed-engine") == {}
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}}
    lab.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "shared"}, "spec": claim})
    until("the engine starts", lambda: lab.get("deploy", "claimed-engine"), 20)
    lab.run("delete", names.PLURAL, "claimed")
    time.sleep(3)
    assert lab.get("pvc", "shared")["metadata"].get("deletionTimestamp") is None


def test_wrong_api_key_env_is_named(lab: Lab) -> None:
    lab.apply(training("env", api={"baseUrl": "http://judge.invalid/v1", "apiKeyEnv": "OPENCLAW_GATEWAY_TOKEN"}))
    until("the condition says so", lambda: lab.condition("env", "ConfigValid").get("reason") == "WrongApiKeyEnv", 20)
    assert "spec.api.apiKeyEnv 'OPENCLAW_GATEWAY_TOKEN'" in lab.condition("env", "ConfigValid")["message"]
    assert lab.get("deploy", "env-judge") == {}
    lab.run("delete", names.PLURAL, "env")


def test_deleted_training_takes_its_children_and_claims_with_it(lab: Lab, demo: str) -> None:
    lab.run("delete", names.PLURAL, demo)
    chosen = f"{names.LABEL_TRAINING}={demo}"
    until("everything is gone", lambda: not lab.items("deploy,svc,sa,role,cm,pvc,lease,pod", chosen), 60)
    assert lab.get("secret", "demo-internal") == {}


# ---------------------------------------------------------------- rights


def account() -> str:
    return f"system:serviceaccount:{OPERATOR_NAMESPACE}:{RELEASE}"


def test_operator_holds_no_wildcard_and_lists_no_secret(lab: Lab) -> None:
    listed = lab.run("auth", "can-i", "--list", f"--as={account()}")
    # Lines that start with a blank are URLs every account may read (discovery, health).
    assert [line for line in listed.splitlines() if "*" in line and not line.startswith(" ")] == []
    for verb in ("list", "watch", "delete", "patch", "update"):
        with pytest.raises(CommandError):
            lab.run("auth", "can-i", verb, "secrets", f"--as={account()}")
    role = json.loads(kubectl("get", "clusterrole", f"{OPERATOR_NAMESPACE}-{RELEASE}", "-o", "json"))
    assert "*" not in json.dumps(role["rules"])
