"""Tags from contents: an image's tag is a digest over everything that goes into it, its parent and base included.

Two checkouts with the same sources get the same tag, so what the registry has need not be built again.
"""

import hashlib
from pathlib import Path

from dev.images.catalogue import BY_NAME, Image

_IGNORED = ("__pycache__", ".mypy_cache", ".ruff_cache")
_LENGTH = 12


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
