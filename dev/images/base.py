"""The Python base image where no public registry of images is reachable: Debian and its Python, from packages.

`BASE_IMAGE` in the environment names another (python:3.13-slim-trixie is what the Dockerfiles default to); then
nothing is made here.
"""

import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path

SUITE = "trixie"
PACKAGES = ("python3", "python3-venv", "ca-certificates", "libstdc++6", "libgomp1")
"""The last two are what wheels with compiled code expect of any distribution."""
_LEFT_OUT = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/info/*")
_COMMAND = (
    "mmdebstrap",
    "--quiet",
    "--variant=essential",
    f"--include={','.join(PACKAGES)}",
    *(f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT),
    SUITE,
)


class BaseImageError(Exception):
    """The base could not be made."""


def key(base_image: str | None) -> str:
    """What stands for the base in every tag: the reference given, else a digest of the recipe."""
    return base_image or hashlib.sha256("\0".join(_COMMAND).encode()).hexdigest()[:12]


def root_file_system(cache: Path, say: Callable[[str], None]) -> Path:
    """The base's files as one tar in `cache`, made once per recipe."""
    target = cache / f"base-{key(None)}.tar"
    if target.exists():
        return target
    say(f"making the base image: Debian {SUITE} with {', '.join(PACKAGES)}")
    partial = target.with_suffix(".partial.tar")
    partial.unlink(missing_ok=True)
    done = subprocess.run([*_COMMAND, str(partial)], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise BaseImageError(f"mmdebstrap failed: {done.stderr.strip()[-600:]}")
    partial.rename(target)
    return target
