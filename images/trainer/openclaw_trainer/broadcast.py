"""One version on its way to one sync's engines: tensors in host memory, a group of its own, one broadcast per tensor.

    load v<N> (page cache) ─▶ buckets        engines join ─▶ group: rank 0 here, then each engine's ranks
                                             broadcast bucket by bucket, in order, ─▶ group is gone

Both ends make the group with the same private helper of torch, because only it lets a process be in a group that is
not part of its default one; SGLang's side is `init_custom_process_group`. Everything is bounded by `timeout`; a group
that did not come about is taken down with its store, which wakes whoever waits in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import safe_open
from torch import Tensor
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]  # exported at run time only

from openclaw_core.versions import MANIFEST_NAME, Manifest
from openclaw_core.wire import TensorSpec

BUCKET_BYTES = 256 << 20
"""Engines hold one bucket beside the model they serve."""


class UnknownVersionError(RuntimeError):
    """The volume does not hold this version as whole weights."""


@dataclass(frozen=True)
class Snapshot:
    """A version's tensors in host memory, in the order in which they are sent."""

    version: str
    tensors: dict[str, Tensor]

    @classmethod
    def load(cls, root: Path, version: str) -> "Snapshot":
        """Read `v<N>`; UnknownVersionError when it is another version, or an adapter."""
        directory = root / f"v{version.partition('-')[0]}"
        try:
            manifest = Manifest.model_validate_json((directory / MANIFEST_NAME).read_bytes())
        except (OSError, ValueError) as error:
            raise UnknownVersionError(f"{directory} holds no version: {error}") from error
        if str(manifest.version()) != version or manifest.is_adapter:
            raise UnknownVersionError(f"{directory} does not hold the whole weights of {version}")
        tensors: dict[str, Tensor] = {}
        for file in manifest.files:
            if file.name.endswith(".safetensors"):
                with safe_open(directory / file.name, framework="pt") as shard:
                    tensors |= {name: shard.get_tensor(name) for name in shard.keys()}  # noqa: SIM118  # no mapping
        return cls(version, tensors)

    def buckets(self) -> list[list[TensorSpec]]:
        """Names, types and shapes, in runs of at most BUCKET_BYTES (one tensor always fits)."""
        found: list[list[TensorSpec]] = []
        room = 0
        for name, tensor in self.tensors.items():
            size = tensor.numel() * tensor.element_size()
            if not found or size > room:
                found.append([])
                room = BUCKET_BYTES
            room -= size
            dtype = str(tensor.dtype).removeprefix("torch.")
            found[-1].append(TensorSpec(name=name, dtype=dtype, shape=list(tensor.shape)))
        return found


class Group:
    """The sender's end of one group. `port` is known before anybody joins."""

    def __init__(self, name: str, backend: str, world_size: int, timeout_sec: float) -> None:
        self.name, self.backend, self._world_size = name, backend, world_size
        self._timeout = timedelta(seconds=timeout_sec)
        self._store: TCPStore | None = TCPStore(
            "0.0.0.0", 0, world_size, is_master=True, wait_for_workers=False, timeout=self._timeout
        )
        self.port = int(self._store.port)
        self._group: Any = None

    def join(self) -> None:
        """Return when every engine is in. Raises what torch raises when one is missing after the timeout."""
        from torch.distributed import distributed_c10d as c10d

        self._group, _ = c10d._new_process_group_helper(
            self._world_size,
            0,
            [],
            c10d.Backend(self.backend),
            PrefixStore(self.name, self._open_store()),
            group_name=c10d.GroupName(self.name),
            timeout=self._timeout,
        )
        c10d._world.pg_group_ranks[self._group] = {rank: rank for rank in range(self._world_size)}

    def _open_store(self) -> TCPStore:
        if self._store is None:
            raise RuntimeError(f"group {self.name} is closed")
        return self._store

    def send(self, tensors: Sequence[Tensor]) -> None:
        """Broadcast in order. Raises what torch raises when an engine is gone or the time is over."""
        device = torch.device("cuda" if self.backend == "nccl" else "cpu")
        for tensor in tensors:
            dist.broadcast(tensor.to(device), src=0, group=self._group)

    def close(self) -> None:
        """Leave; engines that still wait in the group are woken with an error."""
        group, self._group, self._store = self._group, None, None
        if group is not None:
            dist.destroy_process_group(group)
