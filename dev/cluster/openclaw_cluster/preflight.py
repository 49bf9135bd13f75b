"""Says before anything is changed why a cluster cannot run here, and what to do instead."""

import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from openclaw_cluster.errors import ClusterError
from openclaw_cluster.layout import Layout

COLD_DISK_GB = 45
"""Go caches, base and torch images, their registry copies and unpacked layers, at their first making."""
WARM_DISK_GB = 5
FULL_BYTES = 1 << 20
"""With less than this free, a failure is put down to the disk."""
INSTEAD = (
    "To use a cluster that exists, name its context and a registry both of you reach: "
    "KUBECONTEXT=<context> REGISTRY=<host/path> make …"
)


@dataclass(frozen=True)
class Host:
    system: str
    root: bool
    has_apt: bool
    free_gb: float
    cold: bool
    """Nothing is built or pulled yet, so the first run's space is still to be spent."""


def complaint(host: Host) -> str | None:
    """The one sentence that says why not; None if the cluster can run."""
    needed = COLD_DISK_GB if host.cold else WARM_DISK_GB
    if host.system != "Linux":
        return f"The embedded cluster needs Linux; this is {host.system}."
    if not host.root:
        return "The embedded cluster needs root: it makes network bridges, mounts and cgroups."
    if not host.has_apt:
        return "The embedded cluster needs Debian's packages (etcd, containerd, …); there is no apt-get here."
    if host.free_gb < needed:
        return f"The embedded cluster needs {needed} GB of free disk; there are {host.free_gb:.0f} GB."
    return None


def observe(layout: Layout, system: Callable[[], str] = platform.system) -> Host:
    return Host(
        system=system(),
        root=os.geteuid() == 0,
        has_apt=shutil.which("apt-get") is not None,
        free_gb=shutil.disk_usage(_existing(layout.cache)).free / 1e9,
        cold=not layout.kubeconfig.exists(),
    )


def check(layout: Layout) -> None:
    if reason := complaint(observe(layout)):
        raise ClusterError(f"{reason} {INSTEAD}")


def full(layout: Layout) -> str | None:
    """The sentence for a command that failed because a disk took no more; None where there is room."""
    for place in (layout.cache, layout.run):
        disk = os.statvfs(_existing(place))
        # Some file systems have no fixed number of files: then both are 0.
        if disk.f_bavail * disk.f_frsize < FULL_BYTES or (disk.f_files and not disk.f_favail):
            return f"The disk of {place} is full: free some space, then `make cluster-up` goes on from here."
    return None


def _existing(path: Path) -> Path:
    return path if path.exists() else _existing(path.parent)
