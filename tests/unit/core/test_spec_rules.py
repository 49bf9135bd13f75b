from typing import Any

import pytest
from pydantic import ValidationError

from openclaw_core.config.components import ConfigError, GatewayConfig, gateway_config, judge_config
from openclaw_core.config.rules import CEL_RULES
from openclaw_core.config.spec import TrainingSpec

MINIMAL: dict[str, Any] = {"model": {"path": "base"}, "api": {"baseUrl": "http://judge/v1"}, "judge": {"model": "m"}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {}}, "exactly one of path and huggingFace"),
        ({"model": {"path": "x", "huggingFace": {"repo": "a/b"}}}, "exactly one of path and huggingFace"),
        ({"queue": {"maxSize": 47}}, "spec.queue.maxSize must hold"),
        ({"policyTraining": {"minBatch": 17}}, "minBatch must be at most rolloutBatchSize"),
        ({"policyTraining": {"staleFilterSteps": 1}}, "staleFilterSteps must be at least"),
        ({"policyServing": {"gateway": {"replicas": 2}}}, "needs spec.queue.store postgres"),
        ({"queue": {"store": "postgres"}}, "needs spec.queue.postgres.urlSecretRef"),
        ({"rewardJudging": {"votes": 2}}, "votes must be odd"),
        ({"rewardJudging": {"votes": 3}}, "temperature above 0"),
        ({"policyTraining": {"engine": "megatron"}}, "megatron on cuda needs"),
        ({"policyTraining": {"lora": {"publish": "adapter", "targets": ["q_proj"]}}}, "q_proj and v_proj together"),
        ({"policyTraining": {"lora": {"publish": "adapter", "targets": ["up_proj"]}}}, "gate_proj with up_proj"),
        ({"policyServing": {"rollout": {}}}, "canaryReplicas must be below spec.policyServing.replicas"),
        (
            {"policyServing": {"replicas": 2, "rollout": {}}, "rewardJudging": {"replicas": 0}},
            "rollout compares judged turns",
        ),
        ({"api": {}}, "name the judge endpoint, or set spec.rewardJudging.deployed"),
        ({"rewardJudging": {"deployed": {"model": {"path": "judge"}}}}, "spec.rewardJudging.deployed; not both"),
        ({"api": {}, "rewardJudging": {"deployed": {"model": {}}}}, "deployed.model: set exactly one of path"),
        (
            {
                "api": {},
                "rewardJudging": {
                    "deployed": {
                        "model": {"path": "judge"},
                        "tensorParallelSize": 2,
                        "resources": {"limits": {"nvidia.com/gpu": 1}},
                    }
                },
            },
            "must be at least tensorParallelSize",
        ),
        ({"environmentHosting": {"kind": "custom"}}, "custom needs spec.environmentHosting.image"),
        (
            {
                "environmentHosting": {"enabled": True},
                "policyServing": {"gateway": {"apiKeysSecretRef": {"name": "clients"}}},
            },
            "needs apiKeySecretRef too",
        ),
    ],
)
def test_cross_field_mistake_names_the_fields(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TrainingSpec.model_validate(MINIMAL | change)


@pytest.mark.parametrize("targets", [["all-linear"], ["q_proj", "v_proj"], ["gate_proj", "down_proj"], ["o_proj"]])
def test_layers_engines_can_join_are_accepted_for_adapters(targets: list[str]) -> None:
    lora = {"publish": "adapter", "targets": targets}
    spec = TrainingSpec.model_validate(MINIMAL | {"policyTraining": {"lora": lora}})
    assert spec.policy_training.adapter is not None


def test_unknown_key_is_refused_by_name() -> None:
    with pytest.raises(ValidationError, match=r"policyServing\.replica\b"):
        TrainingSpec.model_validate(MINIMAL | {"policyServing": {"replica": 2}})


def test_every_cel_rule_has_a_message_naming_a_field() -> None:
    assert all("spec." in rule.message for rule in CEL_RULES)


def test_component_config_ignores_what_only_concerns_the_pod() -> None:
    plain = TrainingSpec.model_validate(MINIMAL)
    patched = TrainingSpec.model_validate(
        MINIMAL | {"rewardJudging": {"resources": {"requests": {"cpu": 1}}}, "policyTraining": {"learningRate": 0.5}}
    )
    assert judge_config("t", "n", plain) == judge_config("t", "n", patched)


def test_component_config_is_read_back_as_written(tmp_path: Any) -> None:
    config = gateway_config("t", "n", TrainingSpec.model_validate(MINIMAL))
    file = tmp_path / "config.json"
    file.write_text(config.model_dump_json(by_alias=True))
    assert GatewayConfig.load(str(file)) == config


def test_missing_config_file_is_named(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.json"):
        GatewayConfig.load(str(tmp_path / "nowhere.json"))
