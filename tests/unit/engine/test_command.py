"""SGLang's command line and environment."""

from pathlib import Path

import pytest

from openclaw_core.config.components import (
    ConfigError,
    EngineConfig,
    JudgeModelConfig,
    engine_config,
    judge_model_config,
)
from openclaw_core.config.policy_training import Lora
from openclaw_core.config.spec import TrainingSpec
from openclaw_engine import command
from openclaw_engine.staging import ENV_DIRECTORY


def config(**serving: object) -> EngineConfig:
    spec = {
        "model": {"path": "base"},
        "policyServing": {"device": "cpu", **serving},
        "policyTraining": {"dtype": "float32"},
        "api": {"baseUrl": "http://judge/v1"},
        "judge": {"model": "judge"},
    }
    return engine_config("demo", "default", TrainingSpec.model_validate(spec))


def test_arguments_of_a_cpu_engine_are_these() -> None:
    weights = command.Weights("/var/lib/openclaw/weights/v3", "3-0a1b2c3d")
    words = command.arguments(config(args=["--log-level", "warning"]), weights)
    assert words == [
        *("--model-path", "/var/lib/openclaw/weights/v3"),
        *("--weight-version", "3-0a1b2c3d"),
        *("--served-model-name", "policy"),
        *("--host", "0.0.0.0", "--port", "8000"),
        *("--device", "cpu", "--dtype", "float32"),
        *("--tp-size", "1"),
        *("--sampling-defaults", "openai"),
        "--enable-metrics",
        *("--log-level-http", "warning"),
        *("--tool-call-parser", "hermes"),
        *("--max-total-tokens", "16384", "--max-running-requests", "32", "--sleep-on-idle"),
        *("--log-level", "warning"),
    ]


def judge_model(**deployed: object) -> JudgeModelConfig:
    spec = {
        "model": {"path": "base"},
        "rewardJudging": {"deployed": {"model": {"path": "judges/small"}, **deployed}},
        "judge": {"model": "small-judge"},
    }
    return judge_model_config("demo", "default", TrainingSpec.model_validate(spec))


def test_arguments_of_a_judge_model_are_these() -> None:
    assert command.judge_arguments(judge_model(device="cpu", args=["--context-length=4096"])) == [
        *("--model-path", "/var/lib/openclaw/weights/judges/small"),
        *("--served-model-name", "small-judge"),
        *("--host", "0.0.0.0", "--port", "8000"),
        *("--device", "cpu", "--dtype", "float32"),
        *("--tp-size", "1"),
        "--enable-metrics",
        *("--log-level-http", "warning"),
        *("--max-total-tokens", "16384", "--max-running-requests", "32", "--sleep-on-idle"),
        "--context-length=4096",
    ]


def test_judge_model_of_the_hub_is_loaded_at_its_revision_and_may_go_there() -> None:
    model = {"huggingFace": {"repo": "me/judge", "revision": "v2"}}
    config = judge_model(model=model, tensorParallelSize=2)
    words = command.judge_arguments(config)
    assert words[:4] == ["--model-path", "me/judge", "--revision", "v2"]
    assert (words[words.index("--dtype") + 1], words[words.index("--tp-size") + 1]) == ("auto", "2")
    assert "HF_HUB_OFFLINE" not in command.environment(config, {})
    assert command.environment(judge_model(), {})["HF_HUB_OFFLINE"] == "1"


def test_arguments_of_a_judge_model_that_the_operator_sets_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"rewardJudging\.deployed\.args may not hold --port"):
        command.judge_arguments(judge_model(args=["--port=1"]))


def test_arguments_of_a_cuda_engine_leave_memory_to_sglang() -> None:
    words = command.arguments(config(device="cuda", tensorParallelSize=4), command.Weights("/m", "0-00000000"))
    assert "--max-total-tokens" not in words
    assert words[words.index("--tp-size") + 1] == "4"


def test_users_own_arguments_come_last_so_that_they_win() -> None:
    words = command.arguments(config(args=["--max-total-tokens", "64"]), command.Weights("/m", "0-00000000"))
    assert words[-2:] == ["--max-total-tokens", "64"]


@pytest.mark.parametrize("word", ["--admin-api-key", "--port=1", "--admin-api", "--weight-v", "--config", "--model"])
def test_arguments_the_operator_sets_are_refused_by_name(word: str) -> None:
    with pytest.raises(ConfigError, match=word.split("=")[0]):
        command.arguments(config(args=[word, "x"]), command.Weights("/m", "0-00000000"))


def test_base_weights_lie_below_the_volume_or_where_an_absolute_path_says() -> None:
    relative = config().model
    assert command.base_weights(relative, "0-00000000", "/volume").location == "/volume/base"
    absolute = relative.model_copy(update={"path": "/opt/model"})
    assert command.base_weights(absolute, "0-00000000", "/volume").location == "/opt/model"


def test_hub_weights_carry_their_revision_and_may_go_online() -> None:
    spec = config().model_dump(by_alias=True)
    spec["model"] = {"huggingFace": {"repo": "org/model", "revision": "abc"}, "servedName": "policy"}
    hub = EngineConfig.model_validate(spec)
    words = command.arguments(hub, command.base_weights(hub.model, "0-00000000"))
    assert words[:4] == ["--model-path", "org/model", "--revision", "abc"]
    assert "HF_HUB_OFFLINE" not in command.environment(hub, {})


def test_environment_keeps_our_tokens_from_sglang() -> None:
    inherited = {"OPENCLAW_AGENT_TOKEN": "secret", "PATH": "/bin", "PYTHONPATH": "/app", "OMP_NUM_THREADS": "4"}
    environment = command.environment(config(), inherited)
    assert "secret" not in environment.values()
    assert environment["PYTHONPATH"] == "/app/cpu:/app"
    assert environment["OMP_NUM_THREADS"] == "4"
    assert environment["SGLANG_USE_CPU_ENGINE"] == "1"
    assert environment["HF_HUB_OFFLINE"] == "1"


def test_ranks_listen_for_versions_to_read_ahead_where_a_directory_is_named() -> None:
    assert ENV_DIRECTORY not in command.environment(config(), {ENV_DIRECTORY: "/tmp/of-another"})
    assert command.environment(config(), {}, staging=Path("/tmp/staging-1"))[ENV_DIRECTORY] == "/tmp/staging-1"


@pytest.mark.parametrize(
    ("serving", "rest", "doubled"),
    [
        ({"device": "cpu"}, {}, True),
        ({"device": "cuda"}, {}, False),
        ({"device": "cuda", "doubleBuffer": True}, {}, True),
        ({"device": "cpu", "doubleBuffer": False}, {}, False),
        (
            {"device": "cpu", "doubleBuffer": True},
            {"policyTraining": {"lora": {"rank": 4, "publish": "adapter"}}},
            False,
        ),
        ({"device": "cpu"}, {"policyTraining": {"lora": {"rank": 4}}}, True),
        ({"device": "cpu"}, {"storage": {"weights": {"transfer": "distributed"}}}, False),
        ({"device": "cpu", "doubleBuffer": True}, {"storage": {"weights": {"transfer": "distributed"}}}, True),
    ],
)
def test_engines_have_a_second_set_of_weights_where_whole_weights_are_exchanged(
    serving: dict[str, object], rest: dict[str, object], doubled: bool
) -> None:
    spec = {
        "model": {"path": "base"},
        "policyServing": serving,
        "api": {"baseUrl": "http://judge/v1"},
        "judge": {"model": "judge"},
    }
    spec |= rest
    assert engine_config("demo", "lab", TrainingSpec.model_validate(spec)).double_buffer is doubled


def test_environment_on_cuda_uses_the_real_kernels() -> None:
    environment = command.environment(config(device="cuda"), {"PYTHONPATH": "/app"})
    assert environment["PYTHONPATH"] == "/app"
    assert "SGLANG_USE_CPU_ENGINE" not in environment


def adapter_config(device: str = "cpu", **lora: object) -> EngineConfig:
    plain = config(device=device)
    return plain.model_copy(update={"adapter": Lora.model_validate({"rank": 8, "publish": "adapter", **lora})})


def test_adapters_are_served_with_the_rank_and_layers_that_are_trained() -> None:
    words = command.arguments(adapter_config(), command.Weights("/m", "0-00000000"))
    assert words[-15:] == [
        *("--enable-lora", "--max-lora-rank", "8"),
        *("--lora-target-modules", "down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"),
        *("--max-loras-per-batch", "4"),
        *("--lora-backend", "torch_native"),
    ]
    some = command.arguments(adapter_config("cuda", targets=["q_proj", "v_proj"]), command.Weights("/m", "0-00000000"))
    assert some[-5:] == ["--lora-target-modules", "q_proj", "v_proj", "--max-loras-per-batch", "4"]


def test_adapter_of_the_target_is_loaded_with_the_base() -> None:
    weights = command.Weights("/m", "0-00000000", adapter=("7-0a1b2c3d", "/volume/v7"))
    words = command.arguments(adapter_config(), weights)
    assert words[words.index("--lora-paths") + 1] == "7-0a1b2c3d=/volume/v7"


def test_model_whose_mlp_sglang_would_pad_is_refused_before_a_request_ends_the_server() -> None:
    with pytest.raises(ConfigError, match=r"intermediate_size 176 .*lora\.targets"):
        command.refuse_unservable(adapter_config(), {"intermediate_size": 176})
    command.refuse_unservable(adapter_config(), {"intermediate_size": 192})
    command.refuse_unservable(adapter_config(targets=["q_proj", "v_proj"]), {"intermediate_size": 176})
    command.refuse_unservable(adapter_config("cuda"), {"intermediate_size": 176})
    command.refuse_unservable(config(), {"intermediate_size": 176})
