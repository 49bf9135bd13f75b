"""Ends the cluster and proves that nothing of it is left on the host but its folder; `purge` removes that too."""

import shutil

from openclaw_cluster import daemon, sweep
from openclaw_cluster.console import Steps, say
from openclaw_cluster.errors import ClusterError
from openclaw_cluster.layout import Layout


def down(layout: Layout) -> None:
    before = sweep.leftovers(layout)
    steps = Steps(total=2)
    with steps.step("Stop pods and processes"):
        daemon.stop(layout)
    with steps.step("Remove mounts, network and firewall rules"):
        sweep.clean(layout)
    if left := sweep.leftovers(layout):
        raise ClusterError("not everything could be removed:\n" + "\n".join(left))
    say(f"The cluster is down ({len(before)} traces removed). Its data stays in {layout.state}.")


def purge(layout: Layout) -> None:
    down(layout)
    if layout.state.exists():
        shutil.rmtree(layout.state)
    say(f"Removed {layout.state}; the built programs stay in {layout.binaries}.")
