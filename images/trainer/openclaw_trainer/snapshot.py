"""What a checkpoint keeps of policy and optimizer, and how it is put back. Collective where the policy is sharded.

Tensors are whole and on the CPU, so a run may resume with another number of processes. Frozen weights are not in it:
they are the base model's.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from openclaw_trainer import sharding
from openclaw_trainer.policy import Policy

Snapshot = dict[str, Any]


class CheckpointMismatchError(RuntimeError):
    """The checkpoint does not fit the configured model: lora or model.path was changed."""


def take(policy: Policy, optimizer: torch.optim.Optimizer) -> Snapshot:
    """Trained parameters, optimizer state by parameter name, random state."""
    parameters = policy.trainable()
    return {
        "parameters": {name: _kept(parameter.detach()) for name, parameter in parameters.items()},
        "optimizer": {
            name: {key: _kept(value) for key, value in optimizer.state[parameter].items()}
            for name, parameter in parameters.items()
            if parameter in optimizer.state
        },
        "rng": torch.get_rng_state(),
        "cuda_rng": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }


def put_back(policy: Policy, optimizer: torch.optim.Optimizer, saved: Snapshot) -> None:
    """The inverse; learning rate and betas stay those of the configuration. CheckpointMismatchError."""
    parameters = policy.trainable()
    _refuse_other_shapes(parameters, saved["parameters"])
    for name, parameter in parameters.items():
        sharding.put(parameter, saved["parameters"][name])
    for name, state in saved["optimizer"].items():
        parameter = parameters[name]
        optimizer.state[parameter] = {key: _restored(parameter, value) for key, value in state.items()}
    torch.set_rng_state(saved["rng"])
    if saved["cuda_rng"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(saved["cuda_rng"])


def _refuse_other_shapes(ours: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    """CheckpointMismatchError naming the first parameter that differs, and what to do."""
    for name in sorted({*ours, *saved}):
        here, there = ours.get(name), saved.get(name)
        if here is None or there is None or here.shape != there.shape:
            raise CheckpointMismatchError(
                f"{name} is {_shape(there)} in the newest checkpoint and {_shape(here)} by the spec: set "
                "spec.policyTraining.lora (or spec.model) back to what the checkpoint was made with, or delete the "
                "directory checkpoints/ on the weights volume to begin again from the base model"
            )


def _shape(tensor: Tensor | None) -> str:
    return "absent" if tensor is None else "×".join(map(str, tensor.shape))


def _kept(value: Tensor) -> Tensor:
    return sharding.whole(value).cpu().clone()


def _restored(parameter: Tensor, value: Tensor) -> Tensor:
    """Moments lie where their parameter lies; Adam's step counter is a CPU scalar."""
    return sharding.like(parameter, value) if value.dim() else value
