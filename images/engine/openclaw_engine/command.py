"""How SGLang is started: its arguments and its environment. Pure: from the configuration to lists and dicts.

Arguments are checked against SGLang's own parser by the contract test. Nothing here knows the admin key: it reaches
`launch` through a pipe, because SGLang shows its arguments in `/server_info` and in its log.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from openclaw_core import names
from openclaw_core.config.components import ConfigError, EngineConfig, JudgeModelConfig
from openclaw_core.config.model import Model, ModelSource
from openclaw_core.config.policy_training import Lora
from openclaw_engine.staging import ENV_DIRECTORY

SERVED_NAME = "policy"
"""Placeholder: SGLang overwrites it on every update, and clients only ever see the gateway's fixed id."""

CPU_PACKAGES = "/app/cpu"
"""Where the image keeps the stand-in for `sgl_kernel` and the external model package."""

_OURS = frozenset(
    {
        "--admin-api-key",
        "--api-key",
        "--config",
        "--model",
        "--model-path",
        "--revision",
        "--host",
        "--port",
        "--served-model-name",
        "--weight-version",
        "--device",
        "--dtype",
        "--tp",
        "--tp-size",
        "--tensor-parallel-size",
        "--sampling-defaults",
        "--enable-metrics",
        "--tokenizer-worker-num",
        "--enable-http2",
        "--enable-lora",
        "--lora-paths",
        "--max-lora-rank",
        "--lora-target-modules",
    }
)
_CPU_DEFAULTS = ("--max-total-tokens", "16384", "--max-running-requests", "32", "--sleep-on-idle")
"""An idle scheduler would spin and take a whole core from everything else on the node."""
_EVERY_LOGPROB = ("--tool-call-parser", "hermes")
"""Without a parser SGLang's chat streams leave out the logprobs of tokens that add no text: the stop token, pieces of a
character. With one it sends them in chunks of their own. Another parser in the user's arguments does the same."""
_ALL_LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""What `all-linear` means for the models served here. SGLang's `all` would add embeddings, which are not trained."""
_ADAPTER_SLOTS = 4
"""Adapters whose requests run side by side: the serving one, two that streams still use, and none (the base)."""
_CPU_ALIGNMENT = 32
"""On the CPU SGLang pads the MLP's width to a multiple of this, which LoRA's weights do not follow."""
_PRIVATE_PREFIX = "OPENCLAW_"


@dataclass(frozen=True)
class Weights:
    """What SGLang loads when it starts: a directory or a hub repository, and the version it stands for."""

    location: str
    version: str
    revision: str | None = None
    adapter: tuple[str, str] | None = None
    """A LoRA adapter loaded with it: version and directory."""


def base_weights(model: Model, version: str, weights_dir: str = names.WEIGHTS_DIR) -> Weights:
    """The model before anything was published: on the volume, in the image, or on the hub."""
    location, revision = _location(model, weights_dir)
    return Weights(location, version, revision)


def _location(model: ModelSource, weights_dir: str) -> tuple[str, str | None]:
    """Directory, or repository and revision."""
    if model.hugging_face is not None:
        return model.hugging_face.repo, model.hugging_face.revision
    if model.path is None:
        raise ConfigError("model: set exactly one of path and huggingFace")
    return str(Path(weights_dir) / model.path), None


def arguments(config: EngineConfig, weights: Weights, port: int = names.PORT_SGLANG) -> list[str]:
    """Arguments of SGLang's server. The user's own come last, so that they win over defaults; ours are refused."""
    _refuse_ours(config.args, "policyServing.args")
    revision = ["--revision", weights.revision] if weights.revision else []
    return [
        *("--model-path", weights.location, *revision),
        *("--weight-version", weights.version),
        *("--served-model-name", SERVED_NAME),
        *("--host", "0.0.0.0", "--port", str(port)),
        *("--device", config.device, "--dtype", config.dtype),
        *("--tp-size", str(config.tensor_parallel_size)),
        *("--sampling-defaults", "openai"),
        "--enable-metrics",
        *("--log-level-http", "warning"),
        *_EVERY_LOGPROB,
        *(_CPU_DEFAULTS if config.device == "cpu" else ()),
        *_lora_arguments(config, weights),
        *config.args,
    ]


def judge_arguments(config: JudgeModelConfig, weights_dir: str = names.WEIGHTS_DIR) -> list[str]:
    """Arguments of the SGLang that serves a judge model, as above."""
    _refuse_ours(config.args, "rewardJudging.deployed.args")
    location, revision = _location(config.model, weights_dir)
    cpu = config.device == "cpu"
    return [
        *("--model-path", location, *(("--revision", revision) if revision else ())),
        *("--served-model-name", config.served_name),
        *("--host", "0.0.0.0", "--port", str(names.PORT_SGLANG)),
        *("--device", config.device, "--dtype", "float32" if cpu else "auto"),
        *("--tp-size", str(config.tensor_parallel_size)),
        "--enable-metrics",
        *("--log-level-http", "warning"),
        *(_CPU_DEFAULTS if cpu else ()),
        *config.args,
    ]


def _refuse_ours(args: Sequence[str], field: str) -> None:
    taken = sorted(word for word in (word.split("=", 1)[0] for word in args) if _is_ours(word))
    if taken:
        raise ConfigError(f"{field} may not hold {', '.join(taken)}: the operator sets it from the spec")


def layers(lora: Lora) -> frozenset[str]:
    """Names of the layers that may have an adapter."""
    return frozenset(_ALL_LINEAR if lora.targets == ["all-linear"] else lora.targets)


def _lora_arguments(config: EngineConfig, weights: Weights) -> list[str]:
    lora = config.adapter
    if lora is None:
        return []
    return [
        *("--enable-lora", "--max-lora-rank", str(lora.rank)),
        *("--lora-target-modules", *sorted(layers(lora))),
        *("--max-loras-per-batch", str(_ADAPTER_SLOTS)),
        *(("--lora-paths", "=".join(weights.adapter)) if weights.adapter else ()),
        *(("--lora-backend", "torch_native") if config.device == "cpu" else ()),
    ]


def refuse_unservable(config: EngineConfig, base_config: Mapping[str, object]) -> None:
    """ConfigError where loading an adapter would end SGLang, from `config.json` of the base model.

    On the CPU SGLang pads the width of the MLP of such a model, and the first request with an adapter on it would take
    the whole server down.
    """
    width = base_config.get("intermediate_size")
    if config.adapter is None or config.device != "cpu" or not isinstance(width, int):
        return
    if width % (_CPU_ALIGNMENT * config.tensor_parallel_size) and layers(config.adapter) & {
        "gate_proj",
        "up_proj",
        "down_proj",
    }:
        raise ConfigError(
            f"policyTraining.lora.publish adapter: this model's intermediate_size {width} is no multiple of "
            f"{_CPU_ALIGNMENT * config.tensor_parallel_size}, which SGLang needs for adapters of the MLP on the CPU; "
            "set lora.targets to attention projections (q_proj, k_proj, v_proj, o_proj) or lora.publish to merged"
        )


def _is_ours(word: str) -> bool:
    """An option of ours, or an abbreviation of one, which argparse would take for it."""
    return len(word) > 2 and word.startswith("--") and any(option.startswith(word) for option in _OURS)


def environment(
    config: EngineConfig | JudgeModelConfig,
    inherited: Mapping[str, str],
    cpu_packages: str = CPU_PACKAGES,
    staging: Path | None = None,
) -> dict[str, str]:
    """Environment of the SGLang process: ours without our tokens, and what `--device cpu` needs. `staging`: directory
    in which its ranks listen for versions to read ahead; None: they do not."""
    kept = {key: value for key, value in inherited.items() if not key.startswith(_PRIVATE_PREFIX)}
    kept |= {ENV_DIRECTORY: str(staging)} if staging is not None else {}
    kept["SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"] = "false"  # a stray /health must not hang while paused
    kept["SGLANG_TIMEOUT_KEEP_ALIVE"] = "120"  # longer than the gateway keeps an idle connection
    if config.model.hugging_face is None:
        kept["HF_HUB_OFFLINE"] = "1"
    if config.device == "cpu":
        path = [cpu_packages, kept.get("PYTHONPATH", "")]
        kept["PYTHONPATH"] = ":".join(part for part in path if part)
        kept["SGLANG_USE_CPU_ENGINE"] = "1"
        kept.setdefault("SGLANG_EXTERNAL_MODEL_PACKAGE", "onlyllama")
        kept.setdefault("OMP_NUM_THREADS", "1")
    return kept
