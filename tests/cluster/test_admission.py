"""What the API server itself does with a training: refuse mistakes by field, value and limit; fill in the defaults."""

import json
import subprocess
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from pydantic import ValidationError

from openclaw_cli.located import Located
from openclaw_cli.main import main as cli
from openclaw_cli.validate import problems
from openclaw_core import names
from openclaw_core.config.rules import CEL_RULES
from openclaw_core.config.spec import TrainingSpec
from tests.cluster.lab import ROOT, CommandError, Lab, kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

MINIMAL: dict[str, Any] = {
    "model": {"path": "base"},
    "api": {"baseUrl": "http://judge.test/v1"},
    "judge": {"model": "rule"},
}


def body(name: str = "refused", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name}
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": MINIMAL | spec}


def dry_run(paper: Lab, manifest: dict[str, Any], *more: str) -> str:
    return paper.run("create", "--dry-run=server", "-o", "json", *more, "-f", "-", stdin=json.dumps(manifest))


GPU = "nvidia.com/gpu"
BREAKS_A_RULE: list[tuple[dict[str, Any], list[str]]] = [
    ({"model": {}}, ["spec.model: set exactly one of path and huggingFace", "neither is set"]),
    (
        {"model": {"path": "a", "huggingFace": {"repo": "a/b"}}},
        ['path is "a" and huggingFace.repo is "a/b"', "remove one"],
    ),
    (
        {"queue": {"maxSize": 47}},
        ["spec.queue.maxSize is 47 but must be at least 48 = (policyTraining.maxHeadOffPolicyness + 1)", "raise it"],
    ),
    (
        {"policyTraining": {"minBatch": 17}},
        ["spec.policyTraining.minBatch must be at most rolloutBatchSize (is 17, rolloutBatchSize is 16)"],
    ),
    (
        {"policyTraining": {"staleFilterSteps": 1}},
        ["spec.policyTraining.staleFilterSteps must be at least maxHeadOffPolicyness (is 1,", "raise it"],
    ),
    (
        {"policyServing": {"gateway": {"replicas": 2}}},
        ["spec.policyServing.gateway.replicas is 2", 'spec.queue.store postgres (is "sqlite")'],
    ),
    ({"queue": {"store": "postgres"}}, ["spec.queue.postgres.urlSecretRef", "name the Secret"]),
    ({"rewardJudging": {"votes": 2}}, ["spec.rewardJudging.votes must be odd", "(is 2): take 3"]),
    ({"rewardJudging": {"votes": 3}}, ["spec.judge.temperature above 0"]),
    ({"api": {}}, ["spec.api.baseUrl: name the judge endpoint, or set spec.rewardJudging.deployed"]),
    (
        {"rewardJudging": {"deployed": {"model": {"path": "judge"}}}},
        ['spec.api.baseUrl is "http://judge.test/v1", but spec.rewardJudging.deployed', "remove one"],
    ),
    (
        {"api": {}, "rewardJudging": {"deployed": {"model": {}}}},
        ["spec.rewardJudging.deployed.model: set exactly one of path and huggingFace"],
    ),
    (
        {
            "api": {},
            "rewardJudging": {
                "deployed": {
                    "model": {"path": "judge"},
                    "tensorParallelSize": 4,
                    "resources": {"limits": {GPU: 2}},
                }
            },
        },
        ['spec.rewardJudging.deployed.resources.limits["nvidia.com/gpu"] is 2 but tensorParallelSize is 4'],
    ),
    ({"policyTraining": {"engine": "megatron"}}, ["spec.policyTraining.resources.limits['nvidia.com/gpu']"]),
    (
        {"policyServing": {"tensorParallelSize": 4, "resources": {"limits": {GPU: 2}}}},
        ['spec.policyServing.resources.limits["nvidia.com/gpu"] is 2 but tensorParallelSize is 4'],
    ),
    (
        {"policyTraining": {"procsPerNode": 8, "resources": {"limits": {GPU: "1"}}}},
        ['spec.policyTraining.resources.limits["nvidia.com/gpu"] is 1 but procsPerNode is 8'],
    ),
    (
        {"policyTraining": {"method": "opd"}, "rewardJudging": {"replicas": 0}},
        ['spec.policyTraining.method "opd" learns from the hints', "replicas is 0: set it to 1"],
    ),
    (
        {"policyTraining": {"lora": {"publish": "adapter", "targets": ["q_proj"]}}},
        ["spec.policyTraining.lora.targets", "q_proj and v_proj together", "add the missing one"],
    ),
    (
        {"policyServing": {"rollout": {}}},
        [
            "spec.policyServing.rollout.canaryReplicas is 1 but must be below spec.policyServing.replicas (1)",
            "lower it",
        ],
    ),
    (
        {"policyServing": {"replicas": 2, "rollout": {}}, "rewardJudging": {"replicas": 0}},
        ["spec.policyServing.rollout compares judged turns", "spec.rewardJudging.replicas is 0: set it to 1"],
    ),
    ({"environmentHosting": {"kind": "custom"}}, ["spec.environmentHosting.image", "name your container"]),
    (
        {
            "environmentHosting": {"enabled": True},
            "policyServing": {"gateway": {"apiKeysSecretRef": {"name": "keys"}}},
        },
        ["spec.policyServing.gateway.apiKeysSecretRef with spec.environmentHosting needs apiKeySecretRef"],
    ),
    ({"policyServing": {"port": 30001}}, ["spec.policyServing.port 30001", "take another"]),
    (
        {"storage": {"weights": {"existingClaim": "mine", "storageClassName": "fast"}}},
        ['spec.storage.weights.storageClassName "fast" has no effect beside existingClaim "mine": remove one'],
    ),
    (
        {"storage": {"experience": {"existingClaim": "mine", "storageClassName": "fast"}}},
        ['spec.storage.experience.storageClassName "fast" has no effect beside existingClaim "mine": remove one'],
    ),
]


@pytest.mark.parametrize(("spec", "words"), BREAKS_A_RULE)
def test_mistake_across_fields_is_refused_with_field_value_and_fix(
    paper: Lab, spec: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(CommandError) as refusal:
        dry_run(paper, body(**spec))
    assert [word for word in words if word not in str(refusal.value)] == []
    with pytest.raises(ValidationError):
        TrainingSpec.model_validate(MINIMAL | spec)


def test_every_rule_is_broken_by_one_of_the_mistakes() -> None:
    def broken(spec: dict[str, Any]) -> set[str]:
        with pytest.raises(ValidationError) as error:
            TrainingSpec.model_validate(MINIMAL | spec)
        return {rule.message for rule in CEL_RULES if rule.message in str(error.value)}

    assert set.union(*(broken(spec) for spec, _ in BREAKS_A_RULE)) == {rule.message for rule in CEL_RULES}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {"policyServing": {"pauseTimeoutSec": 0}},
            ["spec.policyServing.pauseTimeoutSec", "0", "greater than or equal to 10"],
        ),
        ({"policyServing": {"pauseTimeoutSec": 3601}}, ["spec.policyServing.pauseTimeoutSec", "3601", "3600"]),
        ({"policyServing": {"inFlight": "wait"}}, ["spec.policyServing.inFlight", '"wait"', '"retract"', '"drain"']),
        ({"policyServing": {"replicas": "two"}}, ["spec.policyServing.replicas", "integer"]),
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
        ({"managedBy": "Kueue"}, ["spec.managedBy", "Kueue"]),
        ({"environmentHosting": {"egress": [{"cidr": "example.com"}]}}, ["spec.environmentHosting.egress[0].cidr"]),
    ],
)
def test_mistake_is_refused_naming_field_value_and_limit(paper: Lab, spec: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(CommandError) as refusal:
        dry_run(paper, body(**spec))
    assert [word for word in words if word not in str(refusal.value)] == []


def test_unknown_field_is_refused_when_strict_and_warned_of_otherwise(paper: Lab) -> None:
    manifest = body(policyServing={"replcas": 2})
    with pytest.raises(CommandError, match=r'unknown field "spec.policyServing.replcas"'):
        dry_run(paper, manifest, "--validate=strict")
    done = subprocess.run(
        [
            str(ROOT / ".venv/bin/kubectl"),
            "-n",
            paper.namespace,
            "--kubeconfig",
            str(paper.kubeconfig),
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
    )
    assert 'Warning: unknown field "spec.policyServing.replcas"' in done.stderr


def test_converted_configuration_is_admitted_as_it_was_written(paper: Lab) -> None:
    pair = [str(ROOT / "examples" / "convert" / file) for file in ("config.toml", "settings.json")]
    converted = CliRunner().invoke(cli, ["convert", *pair])
    assert converted.exit_code == 0, converted.stderr
    body = yaml.safe_load(converted.stdout)
    admitted = json.loads(dry_run(paper, body, "--validate=strict"))["spec"]
    assert TrainingSpec.model_validate(admitted) == TrainingSpec.model_validate(body["spec"])


@pytest.mark.parametrize("spec", [{"queue": {"maxSize": "512"}}, {"policyServing": {"pause_timeout_sec": 60}}])
def test_what_offline_validation_refuses_the_api_server_refuses_too(paper: Lab, spec: dict[str, Any]) -> None:
    assert problems(Located(body(**spec), {}), "t.yaml")
    with pytest.raises(CommandError, match=next(iter(next(iter(spec.values()))))):
        dry_run(paper, body(**spec), "--validate=strict")


@pytest.mark.parametrize(("name", "words"), [("a" * 51, "50"), ("1st", "metadata.name"), ("a.b", "metadata.name")])
def test_name_that_would_break_a_service_is_refused(paper: Lab, name: str, words: str) -> None:
    with pytest.raises(CommandError, match=words):
        dry_run(paper, body(name))


def test_longest_name_is_admitted(paper: Lab) -> None:
    assert json.loads(dry_run(paper, body("a" * 50)))["metadata"]["name"] == "a" * 50


def test_defaults_of_the_api_server_equal_the_models(paper: Lab) -> None:
    admitted = json.loads(dry_run(paper, body()))["spec"]
    models = TrainingSpec.model_validate(MINIMAL).model_dump(mode="json", by_alias=True, exclude_none=True)
    assert admitted == models
    assert TrainingSpec.model_validate(admitted) == TrainingSpec.model_validate(MINIMAL)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"model": {"path": "other"}}, "spec.model.path cannot be changed from base to other"),
        ({"managedBy": "kueue.x-k8s.io/multikueue"}, "spec.managedBy cannot be changed from not set to kueue"),
        ({"model": {"path": None, "huggingFace": {"repo": "a/b"}}}, "spec.model.path cannot be changed"),
        (
            {"queue": {"store": "postgres", "postgres": {"urlSecretRef": {"name": "a", "key": "b"}}}},
            "spec.queue.store cannot be changed from sqlite to postgres",
        ),
        ({"storage": {"weights": {"storageClassName": "fast"}}}, "spec.storage.weights.storageClassName cannot"),
        ({"storage": {"experience": {"existingClaim": "mine"}}}, "spec.storage.experience.existingClaim cannot"),
        ({"storage": {"weights": {"size": "1Gi"}}}, "spec.storage.weights.size cannot shrink"),
    ],
)
def test_immutable_field_cannot_be_edited(paper: Lab, spec: dict[str, Any], words: str) -> None:
    paper.apply(body("fixed", suspend=True))
    with pytest.raises(CommandError, match=words):
        paper.patch(names.PLURAL, "fixed", {"spec": spec}, "--dry-run=server")


def test_training_shows_in_get_all_and_scales(paper: Lab) -> None:
    paper.apply(body("fixed", suspend=True))
    assert "openclawtraining.openclawrl.io/fixed" in paper.run("get", "all")
    paper.run("scale", f"{names.PLURAL}/fixed", "--replicas=3")
    assert paper.get(names.PLURAL, "fixed")["spec"]["policyServing"]["replicas"] == 3


def test_trainings_are_selected_by_field(paper: Lab) -> None:
    paper.apply(body("fixed", suspend=True))
    paper.apply(body("moving", model={"path": "base", "servedName": "mine"}))

    def chosen(selector: str) -> str:
        return paper.run("get", "oct", "--field-selector", selector, "-o", "name")

    assert chosen("spec.suspend=true") == "openclawtraining.openclawrl.io/fixed\n"
    assert chosen("spec.model.servedName=mine") == "openclawtraining.openclawrl.io/moving\n"


def test_pod_template_is_kept_whole(paper: Lab) -> None:
    template = {"spec": {"imagePullSecrets": [{"name": "pull"}], "tolerations": [{"key": "gpu", "operator": "Exists"}]}}
    admitted = json.loads(dry_run(paper, body(policyServing={"podTemplate": template})))
    assert admitted["spec"]["policyServing"]["podTemplate"] == template


def test_crd_explains_its_fields(paper: Lab) -> None:
    text = kubectl("explain", f"{names.PLURAL}.spec.policyServing.pauseTimeoutSec", kubeconfig=paper.kubeconfig)
    assert "Seconds after which a pause ends by itself" in text
