"""The children of a training, compared whole with golden manifests.

After a wanted change: `OPENCLAW_WRITE_GOLDEN=1 pytest tests/unit/operator/test_builders.py`, then read the diff.
"""

import copy
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from openclaw_core import names
from openclaw_operator.builders.leases import leases
from openclaw_operator.builders.network import Network
from openclaw_operator.builders.pod_template import merged
from openclaw_operator.builders.secret import internal_secret
from openclaw_operator.builders.storage import claims
from openclaw_operator.facts import component_facts
from openclaw_operator.live import kept
from openclaw_operator.observe import Observation
from openclaw_operator.plan import plan, scaled_elsewhere
from tests.unit.operator.trainings import body, context, training

GOLDEN = Path(__file__).parent / "golden"
FULL = {
    "model": {"huggingFace": {"repo": "Qwen/Qwen3-4B", "tokenSecretRef": {"name": "hub", "key": "token"}}},
    "policyServing": {
        "replicas": 4,
        "pauseTimeoutSec": 60,
        "resources": {"limits": {"nvidia.com/gpu": 1}},
        "podTemplate": {
            "metadata": {"labels": {"team": "rl"}},
            "spec": {"nodeSelector": {"gpu": "h200"}, "containers": [{"name": "engine", "tty": True}]},
        },
        "gateway": {
            "replicas": 2,
            "apiKeySecretRef": {"name": "users", "key": "bearer"},
            "apiKeysSecretRef": {"name": "clients"},
        },
    },
    "queue": {"store": "postgres", "postgres": {"urlSecretRef": {"name": "db", "key": "url"}}},
    "environmentHosting": {
        "enabled": True,
        "kind": "custom",
        "image": "me/users:1",
        "command": ["users"],
        "env": [{"name": "A", "value": "b"}],
    },
    "logging": {"wandb": {"apiKeySecretRef": {"name": "wandb", "key": "key"}}},
    "storage": {"weights": {"existingClaim": "shared", "accessModes": ["ReadWriteMany"]}},
}

DEPLOYED = {"model": {"path": "judges/small"}, "device": "cpu", "args": ["--context-length=4096"]}
JUDGED_HERE = {"api": {}, "rewardJudging": {"deployed": DEPLOYED}, "judge": {"model": "small-judge"}}
EGRESS = [{"cidr": "203.0.113.0/24", "ports": [443]}, {"cidr": "10.0.0.0/8"}]


@pytest.mark.parametrize(
    ("golden", "spec"),
    [
        ("minimal", {}),
        ("full", FULL),
        ("environment", {"environmentHosting": {"enabled": True, "replicas": 2}}),
        ("judge-model", JUDGED_HERE),
    ],
)
def test_plan_equals_the_golden_manifests(golden: str, spec: dict[str, Any]) -> None:
    built = context(training(**spec), secret_hashes={"judge": "c0ffee"})
    text = yaml.safe_dump_all(plan(built, frozenset()).children, sort_keys=False, width=120)
    file = GOLDEN / f"{golden}.yaml"
    if os.environ.get("OPENCLAW_WRITE_GOLDEN"):
        file.write_text(text)
    assert list(yaml.safe_load_all(text)) == list(yaml.safe_load_all(file.read_text()))


@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("spec", [{}, FULL, JUDGED_HERE, {"policyTraining": {"device": "cpu", "nodes": 3}}])
def test_outline_of_a_plan_says_of_every_component_what_the_plan_says(spec: dict[str, Any], groups: bool) -> None:
    of = training(**spec)
    whole = plan(context(of, secret_hashes={"judge": "c0ffee"}, groups=groups), frozenset({names.GATEWAY}))
    live = {(child["kind"], child["metadata"]["name"]): kept(child["kind"], child) for child in whole.children}
    seen = Observation(body(**spec), live, ())
    assert component_facts(of, seen, whole.outline()) == component_facts(of, seen, whole)
    assert len(str(whole.outline())) < len(str(whole)) / 5


@pytest.mark.parametrize("groups", [False, True])
def test_plan_of_a_trainer_of_several_pods_and_of_policies_equals_the_golden_manifests(groups: bool) -> None:
    network = Network(True, "ops", (("app", "operator"),), ("monitoring",))
    spec = {"policyTraining": {"device": "cpu", "nodes": 3}, "environmentHosting": {"enabled": True, "egress": EGRESS}}
    built = plan(context(training(**spec), groups=groups, network=network), frozenset()).children
    chosen = [
        child
        for child in built
        if child["kind"] in ("StatefulSet", "LeaderWorkerSet", "NetworkPolicy", "PodDisruptionBudget")
        or child["metadata"]["name"] == "demo-ranks"
    ]
    text = yaml.safe_dump_all(chosen, sort_keys=False, width=120)
    file = GOLDEN / f"{'groups' if groups else 'nodes'}.yaml"
    if os.environ.get("OPENCLAW_WRITE_GOLDEN"):
        file.write_text(text)
    assert list(yaml.safe_load_all(text)) == list(yaml.safe_load_all(file.read_text()))


def test_engines_and_trainer_meet_only_where_weights_are_broadcast() -> None:
    def from_trainer(transfer: str) -> bool:
        of = training(storage={"weights": {"transfer": transfer}})
        built = plan(context(of, network=Network(True, "ops")), frozenset()).children
        engine = next(c for c in built if c["kind"] == "NetworkPolicy" and c["metadata"]["name"] == "demo-engine")
        return "trainer" in yaml.safe_dump(engine["spec"]["ingress"])

    assert from_trainer("distributed")
    assert not from_trainer("disk")


def test_judge_model_is_reached_by_judges_alone() -> None:
    built = plan(context(training(**JUDGED_HERE), network=Network(enforced=True)), frozenset()).children
    policy = next(c for c in built if c["kind"] == "NetworkPolicy" and c["metadata"]["name"] == "demo-judge-model")
    judges = {"matchLabels": {names.LABEL_TRAINING: "demo", names.LABEL_COMPONENT: "judge"}}
    port = {"protocol": "TCP", "port": 8000}
    assert policy["spec"]["ingress"] == [{"from": [{"podSelector": judges}], "ports": [port]}]


def test_policies_are_made_only_where_the_installation_wants_them() -> None:
    assert [child for child in plan(context(), frozenset()).children if child["kind"] == "NetworkPolicy"] == []


def test_pods_get_no_api_token_but_gateway_and_trainer() -> None:
    built = plan(context(training(environmentHosting={"enabled": True})), frozenset())
    tokens = {
        child["metadata"]["labels"][names.LABEL_COMPONENT]: child["spec"]["template"]["spec"][
            "automountServiceAccountToken"
        ]
        for child in built.children
        if child["kind"] == "Deployment"
    }
    assert tokens == {"engine": False, "gateway": True, "judge": False, "trainer": True, "environment": False}


def test_judge_key_reaches_the_judge_alone_and_only_by_reference() -> None:
    built = plan(context(training(environmentHosting={"enabled": True})), frozenset())
    users = [
        child["metadata"]["name"]
        for child in built.children
        if child["kind"] == "Deployment" and "judge-key" in yaml.safe_dump(child)
    ]
    assert users == ["demo-judge"]
    env = next(
        child for child in built.children if child["kind"] == "Deployment" and child["metadata"]["name"] == "demo-judge"
    )
    assert {"name": "OPENCLAW_JUDGE_API_KEY", "valueFrom": {"secretKeyRef": {"name": "judge-key", "key": "key"}}} in (
        env["spec"]["template"]["spec"]["containers"][0]["env"]
    )


def test_only_the_edited_component_gets_a_new_revision() -> None:
    before = plan(context(), frozenset())
    after = plan(context(training(rewardJudging={"judgeTimeoutSec": 31})), frozenset())
    changed = [name for name in names.COMPONENTS if before.revision(name) != after.revision(name)]
    assert changed == ["judge"]


def test_edit_of_the_judge_model_rolls_nothing_else() -> None:
    before = plan(context(training(**JUDGED_HERE)), frozenset())
    edited = {**JUDGED_HERE, "rewardJudging": {"deployed": {**DEPLOYED, "args": ["--context-length=8192"]}}}
    after = plan(context(training(**edited)), frozenset())
    assert [name for name in names.WORKLOADS if before.revision(name) != after.revision(name)] == ["judge-model"]


def test_judge_model_of_the_hub_gets_its_token_and_no_volume() -> None:
    model = {"huggingFace": {"repo": "me/judge", "tokenSecretRef": {"name": "hub", "key": "token"}}}
    built = plan(context(training(api={}, rewardJudging={"deployed": {"model": model}})), frozenset())
    found = built.workload("judge-model")
    assert found is not None
    pod = found["spec"]["template"]["spec"]
    token = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}
    assert token in pod["containers"][0]["env"]
    assert not any("persistentVolumeClaim" in volume for volume in pod["volumes"])


@pytest.mark.parametrize(
    "spec",
    [
        {"rewardJudging": {"replicas": 3}},
        {"policyServing": {"device": "cpu", "replicas": 3}},
        {"policyServing": {"device": "cpu", "pauseTimeoutSec": 60}},
        {"policyServing": {"device": "cpu", "pinnedVersion": "3-0a0b0c0d"}},
    ],
)
def test_scaling_and_sync_settings_roll_no_pod(spec: dict[str, Any]) -> None:
    before, after = plan(context(), frozenset()), plan(context(training(**spec)), frozenset())
    assert [before.revision(name) for name in names.COMPONENTS] == [after.revision(name) for name in names.COMPONENTS]


def test_rotated_secret_rolls_exactly_its_users() -> None:
    before = plan(context(secret_hashes={"judge": "one"}), frozenset())
    after = plan(context(secret_hashes={"judge": "two"}), frozenset())
    changed = [name for name in names.COMPONENTS if before.secrets(name) != after.secrets(name)]
    assert changed == ["judge"]


def test_suspended_training_asks_for_no_pods_even_where_an_autoscaler_scales() -> None:
    built = plan(context(training(suspend=True), scaled_elsewhere=frozenset({"engine"})), frozenset())
    replicas = {child["spec"]["replicas"] for child in built.children if child["kind"] == "Deployment"}
    assert replicas == {0}


def test_autoscaled_component_leaves_replicas_out() -> None:
    built = plan(context(scaled_elsewhere=frozenset({"engine"})), frozenset())
    scaled = {
        child["metadata"]["name"]: "replicas" in child["spec"]
        for child in built.children
        if child["kind"] == "Deployment"
    }
    assert scaled == {"demo-engine": False, "demo-gateway": True, "demo-judge": True, "demo-trainer": True}


@pytest.mark.parametrize(
    ("manager", "subresource", "theirs"),
    [("kube-controller-manager", "scale", True), ("kubectl", "scale", False), ("kube-controller-manager", "", False)],
)
def test_autoscaler_is_known_by_its_write_to_the_scale_subresource(
    manager: str, subresource: str, theirs: bool
) -> None:
    fields = {"manager": manager, "subresource": subresource, "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    found = scaled_elsewhere({"engine": {"metadata": {"managedFields": [fields]}}})
    assert found == (frozenset({"engine"}) if theirs else frozenset())


def test_blocked_component_is_planned_without_its_deployment() -> None:
    built = plan(context(), frozenset({"judge"}))
    deployments = {child["metadata"]["name"] for child in built.children if child["kind"] == "Deployment"}
    assert deployments == {"demo-engine", "demo-gateway", "demo-trainer"}


def test_claims_outlive_the_training_when_storage_is_retained() -> None:
    kept = claims(training(retainStorage=True))
    assert [claim["metadata"]["ownerReferences"] for claim in kept] == [[], []]


def test_leases_name_nothing_of_their_content() -> None:
    assert all(set(lease) == {"apiVersion", "kind", "metadata"} for lease in leases(training(), None))
    assert all("annotations" not in lease["metadata"] for lease in leases(training(), None))


def test_internal_secret_holds_two_different_tokens() -> None:
    drawn = iter(["first", "second"])
    assert internal_secret(training(), lambda: next(drawn))["stringData"] == {"gateway": "first", "agent": "second"}


@pytest.mark.parametrize(
    ("base", "patch", "result"),
    [
        (
            {"containers": [{"name": "a", "image": "x", "args": ["1"]}]},
            {"containers": [{"name": "a", "args": ["2"]}, {"name": "side"}], "hostNetwork": True},
            {"containers": [{"name": "a", "image": "x", "args": ["2"]}, {"name": "side"}], "hostNetwork": True},
        ),
        (
            {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            {"env": [{"name": "A", "$patch": "delete"}, {"name": "C", "value": "3"}]},
            {"env": [{"name": "B", "value": "2"}, {"name": "C", "value": "3"}]},
        ),
        ({"imagePullSecrets": [{"name": "a"}]}, {"imagePullSecrets": [{"name": "b"}]},
         {"imagePullSecrets": [{"name": "a"}, {"name": "b"}]}),
        ({"ports": [{"containerPort": 1, "name": "x"}]}, {"ports": [{"containerPort": 1, "name": "y"}]},
         {"ports": [{"containerPort": 1, "name": "y"}]}),
        ({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}, {"tolerations": [{"key": "b"}]}),
        ({"securityContext": {"runAsUser": 1, "fsGroup": 2}}, {"securityContext": {"runAsUser": None}},
         {"securityContext": {"fsGroup": 2}}),
        ({"securityContext": {"runAsUser": 1}}, {"securityContext": {"$patch": "replace", "fsGroup": 3}},
         {"securityContext": {"fsGroup": 3}}),
        ({"volumes": [{"name": "v", "emptyDir": {}}]}, {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]},
         {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}),
        ({"volumes": [{"name": "v", "emptyDir": {}}]}, {"volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}]},
         {"volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}]}),
        ({"containers": [{"name": "a"}]}, {"containers": [{"$patch": "replace"}, {"name": "b"}]},
         {"containers": [{"name": "b"}]}),
        ({}, {"containers": [{"name": "b", "resources": {"x": None, "y": 1}}]},
         {"containers": [{"name": "b", "resources": {"y": 1}}]}),
    ],
)  # fmt: skip
def test_pod_template_merges_as_kubernetes_does(
    base: dict[str, Any], patch: dict[str, Any], result: dict[str, Any]
) -> None:
    before = copy.deepcopy(base)
    assert merged(base, patch) == result
    assert base == before


def test_pod_template_cannot_lose_the_labels_that_pick_the_pods() -> None:
    stray = {"metadata": {"labels": {names.LABEL_TRAINING: "other", "team": "rl"}}}
    built = plan(context(training(rewardJudging={"podTemplate": stray})), frozenset())
    judge = next(c for c in built.children if c["kind"] == "Deployment" and c["metadata"]["name"] == "demo-judge")
    labels = judge["spec"]["template"]["metadata"]["labels"]
    assert (labels[names.LABEL_TRAINING], labels["team"]) == ("demo", "rl")
