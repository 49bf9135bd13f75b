"""A LoRA adapter as a version: only A and B of every adapted layer, in PEFT's layout, which SGLang loads as it is.

    adapter_model.safetensors   base_model.model.<layer>.lora_A.weight (r × in), ….lora_B.weight (out × r)
    adapter_config.json         rank, alpha, and the last names of the adapted layers

Engines keep the base model in memory and add alpha / r · B A on the fly, so a version is small and is loaded beside
the one that serves. Version 0 needs no adapter: it is the base model.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor, nn

from openclaw_core.config.policy_training import Lora
from openclaw_core.versions import ADAPTER_CONFIG_NAME
from openclaw_trainer import sharding

WEIGHTS_NAME = "adapter_model.safetensors"
_A_OR_B = (".lora_A.", ".lora_B.")


def tensors(model: nn.Module) -> dict[str, Tensor]:
    """A and B of a model wrapped by PEFT, whole, under the names of an adapter file. Collective where sharded."""
    return {
        _file_name(name): sharding.whole(tensor)
        for name, tensor in model.state_dict().items()
        if any(part in name for part in _A_OR_B)
    }


def write(directory: Path, weights: Mapping[str, Tensor], lora: Lora) -> None:
    """Both files of an adapter."""
    save_file(dict(weights), directory / WEIGHTS_NAME, metadata={"format": "pt"})
    (directory / ADAPTER_CONFIG_NAME).write_text(json.dumps(config(weights, lora), indent=2))


def config(weights: Mapping[str, Tensor], lora: Lora) -> dict[str, object]:
    """What `adapter_config.json` says. `target_modules` are the layers that have an adapter, not what was asked for."""
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": None,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "target_modules": sorted({name.split(".")[-3] for name in weights}),
    }


def _file_name(name: str) -> str:
    """`…q_proj.lora_A.default.weight` → `…q_proj.lora_A.weight`."""
    layer, _, parameter = name.rpartition(".")
    return f"{layer.rpartition('.')[0]}.{parameter}"
