"""Finds and removes what a cluster leaves on the host when it ends, or when it was killed with no chance to tidy.

`down` runs it after the orderly stop; `up` runs it first when no supervisor lives, whatever the reason.
"""

import contextlib
import os
import shutil
import signal
import time
from pathlib import Path

from openclaw_cluster import builds, cgroups, firewall, network, shell
from openclaw_cluster.errors import ClusterError
from openclaw_cluster.layout import Layout

PROGRAMS = {"etcd", "containerd", "containerd-shim-runc-v2", "docker-registry", "kube-router", *builds.COMPONENTS}
MODULES = {"openclaw_cluster.supervisor", "openclaw_cluster.provisioner"}
SHIM_SOCKETS = Path("/run/containerd/s")
CONTAINER_LOG_LINKS = Path("/var/log/containers")


def is_ours(argv: list[str], layout: Layout) -> bool:
    """A program we start whose arguments name our folders. A shell or kubectl that mentions them is not."""
    if not argv:
        return False
    if any(word in MODULES for word in argv[1:3]):
        return True
    places = (f"{layout.state}/", f"{layout.run}/")
    return Path(argv[0]).name in PROGRAMS and any(place in word for word in argv for place in places)


def clean(layout: Layout) -> None:
    _kill(layout)
    cgroups.kill_processes()
    shell.wait_for("pods' processes to end", lambda: not cgroups.processes(), 15)
    _unmount(layout)
    cgroups.remove()
    network.down(layout)
    firewall.clean(layout)
    _remove_log_links(layout)
    _remove_dead_sockets()
    if mounts(layout):
        raise ClusterError(f"still mounted: {', '.join(mounts(layout))}")
    shutil.rmtree(layout.run, ignore_errors=True)


def leftovers(layout: Layout) -> list[str]:
    """Everything of ours that is on the host now, one line each."""
    return [
        *(f"process {pid} {name}" for pid, name in _processes(layout).items()),
        *(f"process {pid} of a pod" for pid in cgroups.processes()),
        *(f"mount {path}" for path in mounts(layout)),
        *network.leftovers(),
        *firewall.leftovers(),
        *cgroups.leftovers(),
    ]


def mounts(layout: Layout, table: Path = Path("/proc/self/mounts")) -> list[str]:
    """Mount points under our folders, deepest first."""
    points = [line.split()[1].encode().decode("unicode_escape") for line in table.read_text().splitlines()]
    ours = [p for p in points if p.startswith((f"{layout.state}/", f"{layout.run}/"))]
    return sorted(ours, key=len, reverse=True)


def _processes(layout: Layout) -> dict[int, str]:
    found = {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            with contextlib.suppress(OSError):
                argv = (directory / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
                if is_ours(argv, layout):
                    found[int(directory.name)] = Path(argv[0]).name
    return found


def _kill(layout: Layout) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + 5
        while (left := _processes(layout)) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            time.sleep(0.2)


def _unmount(layout: Layout) -> None:
    for point in mounts(layout):
        shell.run(["umount", point], check=False)
    for point in mounts(layout):
        shell.run(["umount", "--lazy", point], check=False)


def _remove_dead_sockets() -> None:
    """A killed shim leaves its socket in a folder that no option moves; one that nobody holds open is rubbish."""
    held = Path("/proc/net/unix").read_text()
    for path in SHIM_SOCKETS.glob("*"):
        if path.is_socket() and str(path) not in held:
            path.unlink()


def _remove_log_links(layout: Layout) -> None:
    """kubelet keeps a link per container in a place no option moves."""
    for link in CONTAINER_LOG_LINKS.glob("*.log"):
        if link.is_symlink() and str(link.readlink()).startswith(f"{layout.logs}/"):
            link.unlink()
    with contextlib.suppress(OSError):
        CONTAINER_LOG_LINKS.rmdir()
