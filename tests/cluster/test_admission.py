"""What the API server itself does with a training: refuse mistakes by field, value and limit; fill in the defaults."""

import json
import subprocess
from typing import Any

import pytest

from openclaw_core import names
from openclaw_core.config.spec import TrainingSpec
from tests.cluster.lab import ROOT, CommandError, Lab, environment, kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

MINIMAL: dict[str, Any] = {
    "model": {"path": "base"},
    "api": {"baseUrl": "http://judge.test/v1"},
    "judge": {"model": "rule"},
}


def body(name: str = "refused", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name}
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": MINIMAL | spec}


def dry_run(lab: Lab, manifest: dict[str, Any], *more: str) -> str:
    return lab.run("create", "--dry-run=server", "-o", "json", *more, "-f", "-", stdin=json.dumps(manifest))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {"policyServing": {"pauseTimeoutSec": 0}},
            ["spec.policyServing.pauseTimeoutSec", "0", "greater than or equal to 10"],
        ),
        ({"policyServing": {"pauseTimeoutSec": 3601}}, ["spec.policyServing.pauseTimeoutSec", "3601", "3600"]),
        (
            {"queue": {"maxSize": 47}},
            ["spec.queue.maxSize is 47 but must be at least 48 = (policyTraining.maxHeadOffPolicyness + 1)"],
        ),
        ({"policyServing": {"inFlight": "wait"}}, ["spec.policyServing.inFlight", '"wait"', '"retract"', '"drain"']),
        ({"policyServing": {"replicas": "two"}}, ["spec.policyServing.replicas", "integer"]),
        ({"rewardJudging": {"votes": 2}}, ["spec.rewardJudging.votes must be odd"]),
        ({"rewardJudging": {"votes": 3}}, ["spec.judge.temperature above 0"]),
        ({"policyTraining": {"minBatch": 17}}, ["spec.policyTraining.minBatch must be at most rolloutBatchSize"]),
        (
            {"policyTraining": {"staleFilterSteps": 1}},
            ["spec.policyTraining.staleFilterSteps must be at least maxHeadOffPolicyness"],
        ),
        ({"policyTraining": {"engine": "megatron"}}, ["spec.policyTraining.resources.limits['nvidia.com/gpu']"]),
        ({"policyServing": {"gateway": {"replicas": 2}}}, ["spec.queue.store postgres"]),
        ({"queue": {"store": "postgres"}}, ["spec.queue.postgres.urlSecretRef"]),
        ({"model": {}}, ["spec.model: set exactly one of path and huggingFace"]),
        ({"model": {"path": "a", "huggingFace": {"repo": "a/b"}}}, ["set exactly one of path and huggingFace"]),
        ({"environmentHosting": {"kind": "custom"}}, ["spec.environmentHosting.image"]),
        ({"api": {"baseUrl": "judge.test"}}, ["spec.api.baseUrl", "judge.test"]),
        ({"judge": {}}, ["spec.judge.model", "Required"]),
        (
            {
                "environmentHosting": {"enabled": True},
                "policyServing": {"gateway": {"apiKeysSecretRef": {"name": "clients"}}},
            },
            ["spec.policyServing.gateway.apiKeysSecretRef", "needs apiKeySecretRef too"],
        ),
        ({"policyTraining": {"lora": {"rank": 0}}}, ["spec.policyTraining.lora.rank", "greater than or equal to 1"]),
    ],
)
def test_mistake_is_refused_naming_field_value_and_limit(lab: Lab, spec: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(CommandError) as refusal:
        dry_run(lab, body(**spec))
    assert [word for word in words if word not in str(refusal.value)] == []


def test_unknown_field_is_refused_when_strict_and_warned_of_otherwise(lab: Lab) -> None:
    manifest = body(policyServing={"replcas": 2})
    with pytest.raises(CommandError, match=r'unknown field "spec.policyServing.replcas"'):
        dry_run(lab, manifest, "--validate=strict")
    done = subprocess.run(
        [
            str(ROOT / ".venv/bin/kubectl"),
            "-n",
            lab.namespace,
            "create",
            "--dry-run=server",
            "--validate=warn",
            "-f",
            "-",
        ],
        input=json.dumps(manifest),
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    assert 'Warning: unknown field "spec.policyServing.replcas"' in done.stderr


@pytest.mark.parametrize(("name", "words"), [("a" * 51, "50"), ("1st", "metadata.name"), ("a.b", "metadata.name")])
def test_name_that_would_break_a_service_is_refused(lab: Lab, name: str, words: str) -> None:
    with pytest.raises(CommandError, match=words):
        dry_run(lab, body(name))


def test_longest_name_is_admitted(lab: Lab) -> None:
    assert json.loads(dry_run(lab, body("a" * 50)))["metadata"]["name"] == "a" * 50


def test_defaults_of_the_api_server_equal_the_models(lab: Lab) -> None:
    admitted = json.loads(dry_run(lab, body()))["spec"]
    models = TrainingSpec.model_validate(MINIMAL).model_dump(mode="json", by_alias=True, exclude_none=True)
    assert admitted == models
    assert TrainingSpec.model_validate(admitted) == TrainingSpec.model_validate(MINIMAL)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"model": {"path": "other"}}, "spec.model.path cannot be changed"),
        ({"model": {"path": None, "huggingFace": {"repo": "a/b"}}}, "spec.model.path cannot be changed"),
        ({"queue": {"store": "postgres", "postgres": {"urlSecretRef": {"name": "a", "key": "b"}}}}, "spec.queue.store"),
        ({"storage": {"weights": {"storageClassName": "fast"}}}, "spec.storage.weights.storageClassName cannot"),
        ({"storage": {"experience": {"existingClaim": "mine"}}}, "spec.storage.experience.existingClaim cannot"),
        ({"storage": {"weights": {"size": "1Gi"}}}, "spec.storage.weights.size cannot shrink"),
    ],
)
def test_immutable_field_cannot_be_edited(lab: Lab, spec: dict[str, Any], words: str) -> None:
    manifest = body("fixed", suspend=True)
    lab.apply(manifest)
    with pytest.raises(CommandError, match=words):
        lab.patch(names.PLURAL, "fixed", {"spec": spec}, "--dry-run=server")


def test_training_shows_in_get_all_and_scales(lab: Lab) -> None:
    lab.apply(body("fixed", suspend=True))
    assert "openclawtraining.openclawrl.io/fixed" in lab.run("get", "all")
    lab.run("scale", f"{names.PLURAL}/fixed", "--replicas=3")
    assert lab.get(names.PLURAL, "fixed")["spec"]["policyServing"]["replicas"] == 3


def test_crd_explains_its_fields(lab: Lab) -> None:
    del lab
    text = kubectl("explain", f"{names.PLURAL}.spec.policyServing.pauseTimeoutSec")
    assert "Seconds after which a pause ends by itself" in text
