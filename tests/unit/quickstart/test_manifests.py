"""The shipped manifests through the real models, and what the demo changes in them."""

from typing import Any

import pytest

from examples.quickstart import manifests
from examples.quickstart.bring_up import helm_values
from openclaw_core import names
from openclaw_core.config.spec import TrainingSpec
from openclaw_environment.settings import Settings
from openclaw_environment.tasks import TASKS

IMAGES = {name: f"r/openclaw-{name}:t" for name in ("operator", *names.COMPONENTS, "quickstart")}


def pods(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [o["spec"]["template"]["spec"] for o in objects if o["kind"] in ("Job", "Deployment")]


@pytest.mark.parametrize("model", ["smollm2", "tiny"])
def test_training_file_is_valid_and_its_users_settings_are_too(model: str) -> None:
    manifest = manifests.training(model)
    spec = TrainingSpec.model_validate(manifest["spec"])
    env = {entry.name: entry.value for entry in spec.environment_hosting.env}
    assert Settings.read(env).task is TASKS[manifests.task_name(manifest)]
    assert manifest["apiVersion"] == names.API_VERSION and manifest["kind"] == names.KIND
    claim = manifests.read("base-model.yaml")[0]["metadata"]["name"]
    assert spec.storage.weights.existing_claim == claim
    assert spec.api.api_key_secret_ref is not None
    assert (spec.api.api_key_secret_ref.name, spec.api.api_key_secret_ref.key) == (
        manifests.SECRET,
        manifests.SECRET_KEY,
    )


def test_training_of_the_demo_has_the_measured_settings() -> None:
    learning = TrainingSpec.model_validate(manifests.training("smollm2")["spec"]).policy_training
    assert (learning.max_head_off_policyness, learning.rollout_batch_size) == (1, 16)
    assert (learning.learning_rate, learning.advantage, learning.dtype) == (3e-4, "runningMean", "float32")
    assert learning.lora is not None
    assert (learning.lora.rank, learning.lora.alpha, learning.lora.targets) == (16, 32, ["all-linear"])


def test_tiny_trains_all_weights_so_that_the_whole_loop_is_tested_with_them() -> None:
    assert TrainingSpec.model_validate(manifests.training("tiny")["spec"]).policy_training.lora is None


def test_training_starts_without_users_when_asked_and_takes_the_options() -> None:
    manifest = manifests.training(
        "tiny", reactions="swapped", learning_rate=0.0, judge_url="https://j/v1", judge_model="m", users=False
    )
    spec = TrainingSpec.model_validate(manifest["spec"])
    assert spec.environment_hosting.replicas == 0
    assert {e.name: e.value for e in spec.environment_hosting.env}["OPENCLAW_REACTIONS"] == "swapped"
    assert (spec.policy_training.learning_rate, spec.api.base_url, spec.judge.model) == (0.0, "https://j/v1", "m")


def test_base_model_job_writes_the_chosen_model_to_where_the_training_looks() -> None:
    _, job = manifests.base_model("tiny", IMAGES)
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == IMAGES["quickstart"]
    assert container["env"] == [{"name": "MODEL", "value": "tiny"}]
    assert container["args"][0].endswith("mv /weights/.base.tmp /weights/base; }")
    assert manifests.training("tiny")["spec"]["model"]["path"] == "base"


def test_every_pod_meets_the_restricted_standard_and_the_namespace_enforces_it() -> None:
    labels = manifests.namespace("x")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    for pod in pods([*manifests.base_model("smollm2", IMAGES), *manifests.judge_endpoint(IMAGES)]):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_no_shipped_manifest_holds_a_secret() -> None:
    for file in manifests.FOLDER.glob("*.yaml"):
        assert all(manifest["kind"] != "Secret" for manifest in manifests.read(file.name))


def test_helm_gets_the_reference_of_every_image() -> None:
    values = " ".join(helm_values(IMAGES))
    assert all(IMAGES[name] in values for name in ("operator", *names.COMPONENTS))
