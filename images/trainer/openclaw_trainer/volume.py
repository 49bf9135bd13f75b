"""The weights volume: which versions lie on it, how a new one appears, which may go.

A version appears in one rename: `v<N>.tmp/` is written, every file and the directory are flushed, then it becomes
`v<N>/`. A trainer killed at any point leaves a complete version or a `.tmp` that nobody reads. N is never reused:
numbers of unfinished and deleted directories count as taken while they are there.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import split_torch_state_dict_into_shards
from safetensors.torch import save_file
from torch import Tensor

from openclaw_core.config.policy_training import Lora
from openclaw_core.versions import MANIFEST_NAME, Manifest, ManifestFile
from openclaw_trainer import adapter

_VERSION = re.compile(r"^v(\d+)(?:\.tmp|\.gone)?$")
_WEIGHTS = re.compile(r"\.(safetensors|bin|gguf|pt|pth|h5|msgpack|onnx)$|\.index\.json$")
_CHUNK = 1 << 20
MAX_SHARD = 5 * 10**9
"""Bytes of one safetensors file; larger models get several and an index."""


class StaleEpochError(RuntimeError):
    """A trainer with a higher epoch is at work: this one must end."""


class Volume:
    """`root` holds `v<N>/` directories, and usually `base/` and `checkpoints/`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def highest_number(self) -> int:
        """Highest N in any state, 0 on an empty volume."""
        return max(self._numbers(), default=0)

    def newest(self) -> Manifest | None:
        """Manifest of the newest complete version; a directory without a readable manifest is no version."""
        for number in sorted(self._numbers(), reverse=True):
            manifest = self._read(self.root / f"v{number}")
            if manifest is not None and manifest.number == number:
                return manifest
        return None

    def publish(
        self,
        number: int,
        *,
        epoch: int,
        step: int,
        weights: Mapping[str, Tensor],
        base: Path,
        lora: Lora | None = None,
    ) -> Manifest:
        """Write version `number` and rename it into place.

        `lora` None: `weights` are whole; config, tokenizer and chat template are those of `base`. Else they are the
        adapter's. StaleEpochError when the newest version was written by a later trainer; FileExistsError when the
        number is taken.
        """
        newest = self.newest()
        if newest is not None and newest.trainer_epoch > epoch:
            raise StaleEpochError(f"v{newest.number} was written by trainer epoch {newest.trainer_epoch} > {epoch}")
        final, scratch = self.root / f"v{number}", self.root / f"v{number}.tmp"
        if final.exists():
            raise FileExistsError(f"{final} exists: version numbers are never reused")
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        if lora is not None:
            adapter.write(scratch, weights, lora)
        else:
            _write_model(scratch, weights, base)
        manifest = Manifest(number=number, trainer_epoch=epoch, step=step, files=tuple(_entries(scratch)))
        (scratch / MANIFEST_NAME).write_text(manifest.model_dump_json())
        for file in scratch.iterdir():
            flush(file)
        flush(scratch)
        scratch.rename(final)
        flush(self.root)
        return manifest

    def sweep(self) -> None:
        """Remove what earlier trainers left unfinished or half deleted. Call with the newest epoch only."""
        for pattern in ("v*.tmp", "v*.gone"):
            for path in self.root.glob(pattern):
                if _VERSION.match(path.name):
                    shutil.rmtree(path, ignore_errors=True)

    def delete(self, releasable: Iterable[int], *, keep: int) -> list[int]:
        """Delete versions the operator released, never `keep` (the newest). Returns the numbers deleted."""
        gone = []
        for number in sorted(set(releasable) - {keep, 0}):
            directory = self.root / f"v{number}"
            if directory.is_dir():
                # Renamed first: a half deleted directory must not look like a version.
                marked = directory.rename(self.root / f"v{number}.gone")
                shutil.rmtree(marked, ignore_errors=True)
                gone.append(number)
        return gone

    def _numbers(self) -> list[int]:
        if not self.root.is_dir():
            return []
        return [int(match.group(1)) for match in map(_VERSION.match, os.listdir(self.root)) if match]

    @staticmethod
    def _read(directory: Path) -> Manifest | None:
        try:
            return Manifest.model_validate_json((directory / MANIFEST_NAME).read_bytes())
        except (OSError, ValueError):
            return None


def flush(path: Path) -> None:
    """Push a file or directory to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write_model(directory: Path, weights: Mapping[str, Tensor], base: Path) -> None:
    for file in base.iterdir():
        if file.is_file() and file.name != MANIFEST_NAME and not _WEIGHTS.search(file.name):
            shutil.copyfile(file, directory / file.name)
    config: dict[str, Any] = json.loads((base / "config.json").read_text())
    dtype = next(iter(weights.values())).dtype
    config.pop("torch_dtype", None)
    config["dtype"] = str(dtype).removeprefix("torch.")
    (directory / "config.json").write_text(json.dumps(config, indent=2))
    _write_shards(directory, weights)


def _write_shards(directory: Path, weights: Mapping[str, Tensor]) -> None:
    """`model.safetensors`, or numbered shards and an index: the layout every loader of Hugging Face models reads."""
    plan = split_torch_state_dict_into_shards(dict(weights), max_shard_size=MAX_SHARD)
    for file, names in plan.filename_to_tensors.items():
        save_file({name: weights[name] for name in names}, directory / file, metadata={"format": "pt"})
    if plan.is_sharded:
        index = {"metadata": plan.metadata, "weight_map": plan.tensor_to_filename}
        (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))


def _entries(directory: Path) -> list[ManifestFile]:
    return [
        ManifestFile(name=file.name, size=file.stat().st_size, sha256=_sha256(file))
        for file in sorted(directory.iterdir())
    ]


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
