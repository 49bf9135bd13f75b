"""One screen: what runs, whether the node is ready, where things are."""

import time
from pathlib import Path

from rich.table import Table

from openclaw_cluster import addresses, api, daemon, processes, up
from openclaw_cluster.console import console, say
from openclaw_cluster.errors import ClusterError
from openclaw_cluster.layout import Layout


def status(layout: Layout) -> bool:
    """Show it; return whether the cluster is usable."""
    if daemon.running(layout) is None:
        say(f"The cluster is down. State: {layout.state}{'' if layout.state.exists() else ' (none)'}")
        return False
    console.print(_processes(layout))
    try:
        client = api.Api(layout.kubeconfig)
        node = client.find(f"/api/v1/nodes/{addresses.NODE_NAME}") or {}
        pods = client.get("/api/v1/pods")["items"]
    except (OSError, ClusterError) as error:
        say(f"The API server does not answer: {error}")
        return False
    phases = [pod["status"].get("phase", "Unknown") for pod in pods]
    counts = ", ".join(f"{phases.count(phase)} {phase}" for phase in sorted(set(phases)))
    ready = up.condition(node, "Ready") == "True"
    say(f"Node {addresses.NODE_NAME}: {'Ready' if ready else 'not ready'}; pods: {counts or 'none'}")
    say(f"Kubeconfig: {layout.kubeconfig}\nRegistry:   {addresses.REGISTRY}\nLogs:       {layout.logs}")
    return ready


def _processes(layout: Layout) -> Table:
    table = Table("process", "pid", "up for", box=None)
    for process in processes.load(layout.plan):
        pid = _pid(layout.run / f"{process.name}.pid")
        table.add_row(process.name, str(pid or "-"), _age(pid) if pid else "not running")
    return table


def _pid(path: Path) -> int | None:
    try:
        pid = int(path.read_text())
    except (OSError, ValueError):
        return None
    return pid if Path(f"/proc/{pid}").exists() else None


def _age(pid: int) -> str:
    seconds = int(time.time() - Path(f"/proc/{pid}").stat().st_mtime)
    return f"{seconds // 60} min" if seconds >= 120 else f"{seconds} s"
