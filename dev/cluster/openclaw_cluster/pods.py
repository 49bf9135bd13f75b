"""Ends every container before containerd goes, as a machine's shutdown would: asked first, then killed."""

import contextlib
import os
import signal
import time

from openclaw_cluster import images, shell
from openclaw_cluster.layout import Layout

GRACE_SEC = 10.0


def parse_tasks(listing: str) -> dict[str, int]:
    """`ctr tasks list` -> container id and process id, of those that have a process."""
    rows = [line.split() for line in listing.splitlines()[1:]]
    return {row[0]: int(row[1]) for row in rows if len(row) >= 3 and row[1] != "0"}


def stop_all(layout: Layout, grace_sec: float = GRACE_SEC) -> None:
    ctr = images.ctr(layout)
    tasks = parse_tasks(shell.run([*ctr, "tasks", "list"], check=False))
    for pid in tasks.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_sec
    while time.monotonic() < deadline and any(_alive(pid) for pid in tasks.values()):
        time.sleep(0.1)
    for pid in tasks.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if tasks:
        shell.run([*ctr, "tasks", "delete", "--force", *tasks], check=False)
    if containers := shell.run([*ctr, "containers", "list", "--quiet"], check=False).split():
        shell.run([*ctr, "containers", "delete", *containers], check=False)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
