"""The control group that holds every pod: how `down` finds their processes, whoever started or lost them."""

import contextlib
import os
import signal
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
NAME = "openclaw"
INHERITED = ("cpuset.cpus", "cpuset.mems")
"""In version 1 a new group may hold no process until these have a value."""


def roots(mount: Path = MOUNT) -> list[Path]:
    """Where our group lies: once with cgroup version 2, once per hierarchy with version 1."""
    if (mount / "cgroup.controllers").exists():
        return [mount / NAME]
    # cpu and cpuacct may be two names of one hierarchy.
    return [path / NAME for path in sorted(mount.iterdir()) if path.is_dir() and not path.is_symlink()]


def make() -> None:
    for root in roots():
        root.mkdir(exist_ok=True)
        for name in INHERITED:
            above, here = root.parent / name, root / name
            if above.exists() and here.exists() and not here.read_text().strip():
                here.write_text(above.read_text())
        for directory in (root.parent, root):
            _delegate(directory)


def kill_processes() -> None:
    for pid in processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def processes() -> set[int]:
    found: set[int] = set()
    for root in roots():
        for path in root.rglob("cgroup.procs") if root.exists() else ():
            with contextlib.suppress(OSError):
                found.update(int(word) for word in path.read_text().split())
    return found


def remove() -> None:
    for root in roots():
        if root.exists():
            for directory in [*sorted((p for p in root.rglob("*") if p.is_dir()), reverse=True), root]:
                with contextlib.suppress(OSError):
                    directory.rmdir()


def leftovers() -> list[str]:
    return [f"cgroup {root}" for root in roots() if root.exists()]


def _delegate(directory: Path) -> None:
    """Version 2 only: pods get the controllers that their parents pass on."""
    control = directory / "cgroup.subtree_control"
    if (directory / "cgroup.controllers").exists() and control.exists():
        for controller in (directory / "cgroup.controllers").read_text().split():
            with contextlib.suppress(OSError):
                control.write_text(f"+{controller}")
