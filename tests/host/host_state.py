"""What an embedded cluster could leave on this machine, read with the system's own tools. Pure but for reading.

Nothing of `openclaw_cluster` is asked: its own list of leftovers is what these snapshots judge.
"""

import re
import subprocess
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path

from openclaw_cluster import layout

PROGRAMS = frozenset(
    {
        *("etcd", "containerd", "containerd-shim-runc-v2", "docker-registry"),
        *("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kube-router"),
    }
)
"""What a Kubernetes node runs, by file name."""
LAYOUT = layout.from_environment()
_MODULES = re.compile(r" -m openclaw_cluster\.\w+")
_COUNTERS = re.compile(r" counter packets \d+ bytes \d+|\[\d+:\d+\]")
_SETTINGS = (
    "net/ipv4/ip_forward",
    "net/bridge/bridge-nf-call-iptables",
    "fs/inotify/max_user_instances",
)


@dataclass(frozen=True)
class HostState:
    processes: frozenset[str]
    """Command lines of everything that is part of a Kubernetes node, kernel threads aside."""
    mounts: frozenset[str]
    links: frozenset[str]
    routes: frozenset[str]
    packet_filter: frozenset[str]
    """Rules and chains, counters cut."""
    sets: frozenset[str]
    cgroups: frozenset[str]
    settings: frozenset[str]

    def beyond(self, before: "HostState") -> dict[str, list[str]]:
        """What is here and was not there, and the other way round (`- …`), by field; empty when both are equal."""
        found = {}
        for name in (field.name for field in fields(self)):
            ours, theirs = getattr(self, name), getattr(before, name)
            if ours != theirs:
                found[name] = [*sorted(ours - theirs), *(f"- {gone}" for gone in sorted(theirs - ours))]
        return found


def look() -> HostState:
    return HostState(
        processes=frozenset(argv for argv in command_lines().values() if of_a_node(argv)),
        mounts=frozenset(line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()),
        links=_lines("ip", "-brief", "link", "show"),
        routes=_lines("ip", "route", "show", "table", "all"),
        packet_filter=_lines("nft", "list", "ruleset") | _lines("iptables-save") | _lines("ip6tables-save"),
        sets=_lines("ipset", "list", "-name"),
        cgroups=frozenset(str(path) for path in Path("/sys/fs/cgroup").rglob("openclaw*") if path.is_dir()),
        settings=frozenset(f"{key}={_text(Path('/proc/sys') / key)}" for key in _SETTINGS),
    )


def of_a_node(command_line: str) -> bool:
    """A node's program that works in the cluster's own folders, or one of our modules; pods are told by their group."""
    ours = any(f"{place}/" in command_line for place in (LAYOUT.state, LAYOUT.run))
    return (ours and Path(command_line.split(" ")[0]).name in PROGRAMS) or bool(_MODULES.search(command_line))


def command_lines() -> dict[int, str]:
    """Words of each process, joined by spaces, by pid; kernel threads have none and are left out."""
    found = {}
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if argv := (directory / "cmdline").read_bytes().rstrip(b"\0").decode(errors="replace"):
                found[int(directory.name)] = argv.replace("\0", " ")
    return found


def _text(path: Path) -> str:
    return path.read_text().strip() if path.exists() else "absent"


def _lines(*argv: str) -> frozenset[str]:
    """Of the program's output, without comments, counters and interfaces' volatile flags."""
    text = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout
    lines = (_COUNTERS.sub("", line).strip() for line in text.splitlines())
    return frozenset(line for line in lines if line and not line.startswith("#"))
