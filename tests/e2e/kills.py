"""Ways to kill or stop a part of a running training. Nothing here waits for it to come back.

A container's first process cannot be killed from inside (the kernel shields process 1 of a pid namespace), so that
is done from the node: possible where the node is this machine, as with the embedded cluster.
"""

import os
import signal
from pathlib import Path

from examples.quickstart.commands import Cluster

_SIGNAL_BY_NAME = """
import os, sys
word, number, found = sys.argv[1].encode(), int(sys.argv[2]), 0
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) == os.getpid():
        continue
    try:
        if word in open(f"/proc/{pid}/cmdline", "rb").read():
            os.kill(int(pid), number)
            found += 1
    except (FileNotFoundError, ProcessLookupError):
        pass
sys.exit(0 if found else f"no process {word.decode()}")
"""


class NotVisibleError(Exception):
    """The container's processes are not processes of this machine."""


def kill_container(container_id: str) -> None:
    """SIGKILL to the container's first process, and by that to all of them. `container_id` is the bare hex id."""
    signal_container(container_id, signal.SIGKILL)


def signal_container(container_id: str, number: signal.Signals) -> None:
    """A signal to the container's first process, from the node."""
    os.kill(first_process(container_id), number)


async def signal_process(cluster: Cluster, namespace: str, pod: str, word: str, number: signal.Signals) -> None:
    """Signal every process in the pod whose command line contains `word`, from inside. StepError without one."""
    command = ["python3", "-c", _SIGNAL_BY_NAME, word, str(int(number))]
    await cluster.run_kubectl("-n", namespace, "exec", pod, "--", *command, timeout_sec=30)


def first_process(container_id: str) -> int:
    """Its number on the node."""
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if container_id in (directory / "cgroup").read_text() and _is_first(directory / "status"):
                return int(directory.name)
        except OSError:
            continue  # ended meanwhile
    raise NotVisibleError(f"container {container_id[:12]} has no process on this machine")


def _is_first(status: Path) -> bool:
    words = next(line for line in status.read_text().splitlines() if line.startswith("NSpid:")).split()
    return len(words) > 2 and words[-1] == "1"
