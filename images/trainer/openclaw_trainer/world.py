"""The processes that train together: who this one is, and the few exchanges they need.

One process talks to nobody and needs no process group. Several (torchrun sets RANK and WORLD_SIZE) use NCCL between
GPUs and gloo between CPUs. Every exchange is collective: all ranks call it in the same order.
"""

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")
TIMEOUT = timedelta(minutes=30)
"""How long a rank waits for the others; the lead calls at least once a poll."""


@dataclass(frozen=True)
class World:
    """Rank 0 leads: it alone talks to the gateway and writes files."""

    rank: int = 0
    size: int = 1

    @classmethod
    def join(cls, device: str) -> "World":
        """Read torchrun's environment and, with several processes, enter the process group."""
        world = cls(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))
        if world.size > 1:
            if device == "cuda":
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
            backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
            dist.init_process_group(backend, timeout=TIMEOUT)
        return world

    def gathered(self, value: T) -> list[T]:
        """Every rank's value, by rank, on every rank."""
        if self.size == 1:
            return [value]
        values: list[T | None] = [None] * self.size
        dist.all_gather_object(values, value)
        return values  # type: ignore[return-value]  # every slot is filled now

    def from_lead(self, value: T | None) -> T:
        """The lead's value on every rank."""
        box = [value]
        if self.size > 1:
            dist.broadcast_object_list(box, src=0)
        return box[0]  # type: ignore[return-value]  # the lead's is not None
