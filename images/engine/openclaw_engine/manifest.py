"""Is a version on the volume complete, and is it the one that was announced?

Sizes are compared every time; hashes once per directory, which also pulls the files into the page cache, so that
the update inside the pause reads memory. A version's directory is never rewritten once it carries its final name.
"""

import contextlib
import hashlib
import os
import threading
from pathlib import Path

from pydantic import ValidationError

from openclaw_core import versions
from openclaw_core.versions import MANIFEST_NAME, Manifest, ManifestFile, WeightVersion

_BLOCK = 4 << 20


class IncompleteVersionError(Exception):
    """A version cannot be loaded: missing, cut short, damaged, or another one than announced."""


class Volume:
    """The weights volume, as the agent reads it. Remembers which versions it has hashed.

    `adapters`: versions are LoRA adapters; else whole weights. One of the other kind cannot be loaded.
    """

    def __init__(self, root: Path, *, adapters: bool = False) -> None:
        self._root, self._adapters = root, adapters
        self._weights: dict[WeightVersion, frozenset[str]] = {}
        """Per version hashed so far: the hashes of its weight files."""
        self._hashing = threading.Lock()

    def directory(self, version: WeightVersion) -> Path:
        return self._root / versions.directory(version)

    def check(self, version: WeightVersion) -> Path:
        """Directory of a complete version; IncompleteVersionError says what is wrong. Blocks: run it in a thread."""
        directory = self.directory(version)
        manifest = _read(directory / MANIFEST_NAME)
        if manifest.version() != version:
            raise IncompleteVersionError(f"{directory} holds version {manifest.version()}, not {version}")
        if manifest.is_adapter != self._adapters:
            raise IncompleteVersionError(_other_kind(directory, manifest))
        for file in manifest.files:
            _check_size(directory, file)
        with self._hashing:
            self._check_hashes(version, directory, manifest)
        return directory

    def _check_hashes(self, version: WeightVersion, directory: Path, manifest: Manifest) -> None:
        """Once per version; after that the files are only asked back into the page cache, should they have left it."""
        if version in self._weights:
            for file in manifest.files:
                _warm(directory / file.name)
        else:
            for file in manifest.files:
                _check_hash(directory, file)
            self._weights[version] = frozenset(file.sha256 for file in manifest.files if _holds_weights(file))

    def differ(self, one: WeightVersion | None, other: WeightVersion) -> bool | None:
        """Do two checked versions hold different weights? None: unknown (the base has no manifest)."""
        weights = [self._weights.get(version) for version in (one, other) if version]
        if len(weights) < 2 or None in weights:
            return None
        return weights[0] != weights[1]


def _read(path: Path) -> Manifest:
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except OSError as error:
        raise IncompleteVersionError(f"cannot read {path}: {error.strerror}") from error
    except ValidationError as error:
        raise IncompleteVersionError(f"{path} is no manifest: {error.error_count()} errors") from error


def _other_kind(directory: Path, manifest: Manifest) -> str:
    holds, wanted = ("a LoRA adapter", "merged") if manifest.is_adapter else ("whole weights", "adapter")
    return f"{directory} holds {holds}, but policyTraining.lora.publish is {wanted}: the trainer publishes it afresh"


def _holds_weights(file: ManifestFile) -> bool:
    return file.name.endswith((".safetensors", ".bin"))


def _check_size(directory: Path, file: ManifestFile) -> None:
    path = directory / file.name
    if not path.resolve().is_relative_to(directory.resolve()):
        raise IncompleteVersionError(f"manifest names {file.name}, which lies outside {directory}")
    try:
        size = path.stat().st_size
    except OSError as error:
        raise IncompleteVersionError(f"cannot read {path}: {error.strerror}") from error
    if size != file.size:
        raise IncompleteVersionError(f"{path} has {size} bytes, its manifest says {file.size}")


def _warm(path: Path) -> None:
    """Have the kernel read a file ahead; returns at once. A file that cannot be opened is somebody else's finding."""
    with contextlib.suppress(OSError), path.open("rb") as stream:
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)


def _check_hash(directory: Path, file: ManifestFile) -> None:
    digest = hashlib.sha256()
    try:
        with (directory / file.name).open("rb") as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
    except OSError as error:
        raise IncompleteVersionError(f"cannot read {directory / file.name}: {error.strerror}") from error
    if digest.hexdigest() != file.sha256:
        raise IncompleteVersionError(f"{directory / file.name} does not match the hash in its manifest")
