"""The model being trained: loaded from the base, optionally with LoRA, exported as what engines load.

Numbers: whatever is trained is kept in float32, so that small steps are not rounded away; with `dtype: bfloat16` the
forward runs under autocast and frozen weights are kept in bfloat16. This module knows no loss and no file layout.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from openclaw_core.config.policy_training import Lora, PolicyTraining
from openclaw_trainer import adapter, sharding
from openclaw_trainer.world import World

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
_PEFT_PREFIX = "base_model.model."


class Policy:
    """A causal language model on one device, and the reference it started from."""

    def __init__(
        self,
        model: nn.Module,
        *,
        dtype: torch.dtype,
        device: torch.device,
        lora: Lora | None,
        reload: Callable[[], nn.Module],
    ) -> None:
        self.model, self.dtype, self.device, self.lora = model, dtype, device, lora
        self._reload = reload
        self._reference: nn.Module | None = None

    @classmethod
    def load(cls, directory: Path, training: PolicyTraining, world: World | None = None) -> "Policy":
        """Read the base model at `directory`, sharded when `world` has several ranks.

        Seeds torch, since LoRA's A is drawn at random and must be the same on every rank.
        """
        torch.manual_seed(training.seed)
        dtype, device = DTYPES[training.dtype], torch.device(training.device)
        base_dtype = dtype if training.lora else torch.float32

        def read(lora: Lora | None) -> nn.Module:
            base = AutoModelForCausalLM.from_pretrained(directory, dtype=base_dtype, attn_implementation="sdpa")
            model: nn.Module = (_with_lora(base, lora) if lora else base).to(device)
            if world is not None and world.size > 1:
                sharding.shard(model, dtype)
            # eval: dropout off, so that the policy trained is the policy served.
            return model.eval()

        lora = training.lora
        return cls(read(lora), dtype=dtype, device=device, lora=lora, reload=lambda: read(None))

    @property
    def _publishes_adapter(self) -> bool:
        return self.lora is not None and self.lora.publish == "adapter"

    def trainable(self) -> dict[str, nn.Parameter]:
        """Parameters the optimizer moves, by name."""
        return {name: parameter for name, parameter in self.model.named_parameters() if parameter.requires_grad}

    def keep_reference(self) -> None:
        """Load the base a second time as π_ref. LoRA needs none: its reference is its own base."""
        if self.lora is None:
            self._reference = self._reload().requires_grad_(False)

    @contextlib.contextmanager
    def reference(self) -> Iterator[nn.Module]:
        """The model before training, for the KL term."""
        if self.lora is not None:
            with self.model.disable_adapter():  # type: ignore[operator]  # peft's, behind nn.Module
                yield self.model
            return
        if self._reference is None:
            raise RuntimeError("keep_reference() was not called")
        yield self._reference

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """bfloat16 arithmetic where the served dtype is bfloat16, else none."""
        return torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32)

    @torch.no_grad()
    def export(self) -> dict[str, Tensor]:
        """What engines load, in the served dtype, on the CPU. Collective where the policy is sharded."""
        tensors = adapter.tensors(self.model) if self._publishes_adapter else self._merged()
        return {name: tensor.to("cpu", self.dtype).contiguous() for name, tensor in tensors.items()}

    def _merged(self) -> dict[str, Tensor]:
        """The whole weights under the base model's own names, LoRA merged.

        W + (alpha / r) B A is added in float32 and rounded once. Tied output embeddings are left out, as
        `save_pretrained` does.
        """
        tensors = {name: sharding.whole(tensor) for name, tensor in self.model.state_dict().items()}
        for name, layer in _lora_layers(self.model):
            _merge(tensors, name, layer)
        if getattr(self.model, "config").tie_word_embeddings:  # noqa: B009  # nn.Module's type knows no config
            tensors = {name: tensor for name, tensor in tensors.items() if not name.endswith("lm_head.weight")}
        return {name.removeprefix(_PEFT_PREFIX): tensor for name, tensor in tensors.items()}


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


def _merge(tensors: dict[str, Tensor], name: str, layer: Any) -> None:
    """Replace the base weight and the adapter of one layer by their sum, under the base model's name."""
    active = layer.active_adapters[0]
    base_O_I = tensors.pop(f"{name}.base_layer.weight")
    a_R_I = tensors.pop(f"{name}.lora_A.{active}.weight")
    b_O_R = tensors.pop(f"{name}.lora_B.{active}.weight")
    tensors[f"{name}.weight"] = base_O_I.float() + layer.scaling[active] * (b_O_R.float() @ a_R_I.float())
    if f"{name}.base_layer.bias" in tensors:
        tensors[f"{name}.bias"] = tensors.pop(f"{name}.base_layer.bias")
