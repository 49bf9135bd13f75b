"""Runs other programs: the output of a failed one becomes the error's text."""

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from openclaw_cluster.errors import ClusterError

TAIL_LINES = 15


def run(
    argv: Sequence[str | Path],
    *,
    check: bool = True,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    timeout_sec: float = 60,
) -> str:
    """Return standard output; with `check`, a failure raises with the end of what the program said."""
    try:
        done = subprocess.run(
            [str(word) for word in argv],
            cwd=cwd,
            env={**os.environ, **(env or {})},
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=timeout_sec,
        )
    except FileNotFoundError as error:
        if not check:
            return ""
        raise ClusterError(f"{argv[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        if not check:
            return ""
        raise ClusterError(f"{argv[0]} did not finish within {timeout_sec:.0f} s") from error
    if check and done.returncode != 0:
        said = "\n".join((done.stderr + done.stdout).strip().splitlines()[-TAIL_LINES:])
        raise ClusterError(f"{' '.join(map(str, argv[:4]))} … failed ({done.returncode}):\n{said}")
    return done.stdout


def wait_for(what: str, ready: Callable[[], bool], timeout_sec: float, hint: str = "") -> None:
    """Poll until `ready`; the error at the deadline names what was waited for and where to look."""
    deadline = time.monotonic() + timeout_sec
    while not ready():
        if time.monotonic() > deadline:
            raise ClusterError(f"{what}: not after {timeout_sec:.0f} s. {hint}".rstrip())
        time.sleep(0.2)


def write_if_changed(path: Path, text: str, mode: int = 0o600) -> bool:
    """Write atomically; return whether the content differs from before."""
    if path.exists() and path.read_text() == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(text)
    draft.chmod(mode)
    draft.replace(path)
    return True
