"""The model being trained: loaded from the base, optionally with LoRA, exported as the whole weights engines serve.

Numbers: whatever is trained is kept in float32, so that small steps are not rounded away; with `dtype: bfloat16` the
forward runs under autocast and frozen weights are kept in bfloat16. This module knows no loss and no file layout.
"""

import contextlib
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from openclaw_core.config.policy_training import Lora, PolicyTraining

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
_PEFT_PREFIX = "base_model.model."


class Policy:
    """A causal language model on one device, and the reference it started from."""

    def __init__(self, model: nn.Module, *, dtype: torch.dtype, device: torch.device, lora: bool) -> None:
        self.model, self.dtype, self.device, self.lora = model, dtype, device, lora
        self._reference: nn.Module | None = None

    @classmethod
    def load(cls, directory: Path, training: PolicyTraining) -> "Policy":
        """Read the base model at `directory`; seeds torch, since LoRA's A is drawn at random."""
        torch.manual_seed(training.seed)
        dtype, device = DTYPES[training.dtype], torch.device(training.device)
        base_dtype = dtype if training.lora else torch.float32
        model = AutoModelForCausalLM.from_pretrained(directory, dtype=base_dtype, attn_implementation="sdpa")
        if training.lora is not None:
            model = _with_lora(model, training.lora)
        # eval: dropout off, so that the policy trained is the policy served.
        return cls(model.to(device).eval(), dtype=dtype, device=device, lora=training.lora is not None)

    def trainable(self) -> dict[str, nn.Parameter]:
        """Parameters the optimizer moves, by name."""
        return {name: parameter for name, parameter in self.model.named_parameters() if parameter.requires_grad}

    def keep_reference(self) -> None:
        """Remember the present weights as π_ref. Full fine-tuning only; LoRA's reference is its base."""
        if not self.lora:
            self._reference = copy.deepcopy(self.model).requires_grad_(False)

    @contextlib.contextmanager
    def reference(self) -> Iterator[nn.Module]:
        """The model before training, for the KL term."""
        if self.lora:
            with self.model.disable_adapter():  # type: ignore[operator]  # peft's, behind nn.Module
                yield self.model
            return
        if self._reference is None:
            raise RuntimeError("keep_reference() was not called before training began")
        yield self._reference

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """bfloat16 arithmetic where the served dtype is bfloat16, else none."""
        return torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32)

    @torch.no_grad()
    def export(self) -> dict[str, Tensor]:
        """The whole weights under the base model's own names, LoRA merged, in the served dtype, on the CPU.

        W + (alpha / r) B A is added in float32 and rounded once. Tied output embeddings are left out, as
        `save_pretrained` does.
        """
        merged = {f"{name}.weight": _merged(module) for name, module in _lora_layers(self.model)}
        weights: dict[str, Tensor] = {}
        for name, tensor in self.model.state_dict().items():
            if ".lora_" in name or ".base_layer." in name:
                continue
            weights[name.removeprefix(_PEFT_PREFIX)] = tensor
        weights.update({name.removeprefix(_PEFT_PREFIX): tensor for name, tensor in merged.items()})
        if getattr(self.model, "config").tie_word_embeddings:  # noqa: B009  # nn.Module's type knows no config
            weights.pop("lm_head.weight", None)
        return {name: tensor.to("cpu", self.dtype).contiguous() for name, tensor in weights.items()}


def _with_lora(model: nn.Module, lora: Lora) -> nn.Module:
    # Imported only where needed: it costs every start some seconds.
    from peft import LoraConfig, get_peft_model

    targets: str | list[str] = "all-linear" if lora.targets == ["all-linear"] else lora.targets
    config = LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, target_modules=targets, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM"
    )
    wrapped: nn.Module = get_peft_model(model, config, autocast_adapter_dtype=True)
    return wrapped


def _lora_layers(model: nn.Module) -> list[tuple[str, Any]]:
    """(name, peft's LoraLayer) of every adapted linear map."""
    return [(name, module) for name, module in model.named_modules() if hasattr(module, "lora_A")]


def _merged(layer: Any) -> Tensor:
    """W + scale · B A in float32, shape of W."""
    name = layer.active_adapters[0]
    a_R_I, b_O_R = layer.lora_A[name].weight.float(), layer.lora_B[name].weight.float()
    merged: Tensor = layer.get_base_layer().weight.float() + layer.scaling[name] * (b_O_R @ a_R_I)
    return merged
