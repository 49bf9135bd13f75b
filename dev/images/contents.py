"""Tags from contents: an image's tag is a digest over everything that goes into it, its parent and base included.

Two checkouts with the same sources get the same tag, so what the registry has need not be built again.
"""

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from dev.images.catalogue import BY_NAME, Image

_IGNORED = ("__pycache__", ".mypy_cache", ".ruff_cache")
_LENGTH = 12
_MOMENT = 1_577_836_800
"""Modification time of every file of a snapshot, so that a builder's cache goes by contents alone."""


class MissingInputError(Exception):
    """An input of an image is not in this checkout."""


def tag(root: Path, image: Image, base_key: str) -> str:
    """12 hex digits over the Dockerfile, every input file (path, mode, bytes), the parent's tag and the base's key."""
    digest = hashlib.sha256(f"{image.name}\0{base_key}\0".encode())
    if image.parent is not None:
        digest.update(tag(root, BY_NAME[image.parent], base_key).encode())
    for name in (image.dockerfile, ".dockerignore", *image.inputs):
        for path in files(root, name):
            executable = b"x" if path.stat().st_mode & 0o100 else b"-"
            content = hashlib.sha256(path.read_bytes()).digest()
            digest.update(str(path.relative_to(root)).encode() + b"\0" + executable + content)
    return digest.hexdigest()[:_LENGTH]


def snapshot(root: Path, images: Iterable[Image], folder: Path) -> None:
    """Copy the inputs of `images` into `folder`: what is hashed is then what is built, edited meanwhile or not."""
    for image in images:
        for name in (image.dockerfile, ".dockerignore", *image.inputs):
            for path in files(root, name):
                copy = folder / path.relative_to(root)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, copy)
                os.utime(copy, (_MOMENT, _MOMENT))
    for directory in (path for path in folder.rglob("*") if path.is_dir()):
        os.utime(directory, (_MOMENT, _MOMENT))


def files(root: Path, name: str) -> list[Path]:
    """Files of one input, sorted: itself, or everything under a folder but caches."""
    path = root / name
    if path.is_file():
        return [path]
    found = [
        file
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.suffix != ".pyc" and not set(_IGNORED) & set(file.relative_to(path).parts)
    ]
    if not found:
        raise MissingInputError(f"{name} is missing in this checkout; images are built from a complete one")
    return found
