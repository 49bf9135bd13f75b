"""Versions on a weights volume as the trainer leaves them: files, then a manifest that proves them complete."""

import hashlib
from pathlib import Path

from openclaw_core.versions import MANIFEST_NAME, Manifest, ManifestFile, WeightVersion


def write(root: Path, number: int, files: dict[str, bytes]) -> WeightVersion:
    """Write `v<number>` with these files and its manifest; the version to announce."""
    directory = root / f"v{number}"
    directory.mkdir(parents=True)
    for name, content in files.items():
        (directory / name).write_bytes(content)
    return seal(directory, number)


def seal(directory: Path, number: int) -> WeightVersion:
    """Write the manifest over the files that lie in `directory`."""
    entries = tuple(_entry(path) for path in sorted(directory.iterdir()) if path.name != MANIFEST_NAME)
    manifest = Manifest(number=number, trainer_epoch=1, step=number, files=entries)
    (directory / MANIFEST_NAME).write_text(manifest.model_dump_json())
    return manifest.version()


def _entry(path: Path) -> ManifestFile:
    content = path.read_bytes()
    return ManifestFile(name=path.name, size=len(content), sha256=hashlib.sha256(content).hexdigest())
