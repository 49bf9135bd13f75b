"""FSDP2: parameters, gradients and optimizer state split over the ranks, layer by layer.

Source: `torch.distributed.fsdp.fully_shard`. Sharded parameters are DTensors under their old names; `whole` puts one
together again, which is collective.
"""

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor


def shard(model: nn.Module, dtype: torch.dtype) -> None:
    """Split `model` in place over the default process group: one unit per decoder layer, one for the rest."""
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    units = set(getattr(model, "_no_split_modules", None) or ())
    for module in model.modules():
        if type(module).__name__ in units:
            fully_shard(module, mp_policy=policy)
    fully_shard(model, mp_policy=policy)


def whole(tensor: Tensor) -> Tensor:
    """The full tensor; a plain one is itself."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def put(target: Tensor, value: Tensor) -> None:
    """Copy a full tensor into a parameter or its shard."""
    if isinstance(target, DTensor):
        value = distribute_tensor(value.to(target.device), target.device_mesh, target.placements)
    target.copy_(value)


def like(target: Tensor, value: Tensor) -> Tensor:
    """`value` split as `target` is."""
    if isinstance(target, DTensor) and value.shape == target.shape:
        return distribute_tensor(value.to(target.device), target.device_mesh, target.placements)
    return value.to(target.device)
