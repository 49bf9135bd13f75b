"""Identity of a weight version and the manifest that proves one complete.

A version is written `<N>-<first 8 hex of the manifest digest>` everywhere: Lease annotations, engine
`weight_version`, spans of a turn. N alone orders versions; the digest tells two different N apart that a lost
volume could have produced. The trainer writes manifests, the sync agent checks them; neither function here
touches a disk.
"""

import hashlib
import json
import re
from typing import Self

from pydantic import BaseModel, ConfigDict, Field

MANIFEST_NAME = "manifest.json"
ADAPTER_CONFIG_NAME = "adapter_config.json"
"""PEFT's name; a version that holds this file is a LoRA adapter, every other one whole weights."""
_PATTERN = re.compile(r"^(\d{1,12})-([0-9a-f]{8})$")


class VersionFormatError(ValueError):
    """A string that should be `<N>-<8 hex>` is not."""


class WeightVersion(BaseModel):
    """One version of the policy: ordinal `number` (0 = the base model) and the first 8 hex of its digest."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    number: int = Field(ge=0)
    digest8: str = Field(pattern=r"^[0-9a-f]{8}$")

    def __str__(self) -> str:
        return f"{self.number}-{self.digest8}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `<N>-<8 hex>`; VersionFormatError names the offending text."""
        match = _PATTERN.match(text)
        if match is None:
            raise VersionFormatError(f"weight version {text!r} is not <number>-<8 hex digits>, e.g. 7-0a1b2c3d")
        return cls(number=int(match.group(1)), digest8=match.group(2))

    @classmethod
    def of(cls, number: int, digest: str) -> Self:
        """Version of a full manifest digest (64 hex)."""
        return cls(number=number, digest8=digest[:8])


BASE = WeightVersion(number=0, digest8="00000000")
"""The base model, before anything was published. Its digest is not a manifest's: it is fixed."""


def directory(version: WeightVersion) -> str:
    """Directory of a version below the weights volume: `base` or `v<N>`."""
    return "base" if version.number == 0 else f"v{version.number}"


class ManifestFile(BaseModel):
    """One file of a version: name relative to its directory, size in bytes, sha256 in hex."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    size: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Manifest(BaseModel):
    """What `v<N>/manifest.json` holds. Written last, before the directory is renamed into place."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    number: int = Field(ge=1)
    trainer_epoch: int = Field(ge=0)
    step: int = Field(ge=0)
    files: tuple[ManifestFile, ...]

    def digest(self) -> str:
        """Sha256 (64 hex) of the canonical JSON of this manifest."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def version(self) -> WeightVersion:
        return WeightVersion.of(self.number, self.digest())

    @property
    def is_adapter(self) -> bool:
        """A LoRA adapter to add to the base model, not whole weights."""
        return any(file.name == ADAPTER_CONFIG_NAME for file in self.files)


class Target(BaseModel):
    """Content of ConfigMap `<name>-target`, key `target.json`: what every engine should serve."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    version: str
