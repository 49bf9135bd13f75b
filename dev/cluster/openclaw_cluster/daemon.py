"""Starts, finds and ends the supervisor. Its pid file may be stale, so the process behind it is looked at."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from openclaw_cluster import processes, shell
from openclaw_cluster.desired import PACKAGE_PARENT
from openclaw_cluster.layout import Layout

MODULE = "openclaw_cluster.supervisor"
STOP_TIMEOUT_SEC = 120


def running(layout: Layout) -> int | None:
    """The supervisor's process id if it lives."""
    try:
        pid = int(layout.supervisor_pid.read_text())
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except (OSError, ValueError):
        return None
    return pid if MODULE in argv else None


def unsettled(layout: Layout) -> list[str]:
    """Names of the planned processes that do not run, or not yet as planned."""
    running_now = processes.load(layout.running) if layout.running.exists() else []
    return [process.name for process in processes.load(layout.plan) if process not in running_now]


def start(layout: Layout) -> None:
    log = layout.logs / "supervisor.log"
    # An API server must not inherit the terminal's or a test run's proxies.
    environment = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    with log.open("ab") as output:
        subprocess.Popen(
            [sys.executable, "-m", MODULE],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            env={**environment, "PYTHONPATH": str(PACKAGE_PARENT)},
            start_new_session=True,
        )
    shell.wait_for("the supervisor to start", lambda: running(layout) is not None, 15, f"See {log}.")


def stop(layout: Layout) -> None:
    """Ask it to end its processes in order, and wait; a dead or stuck one is left to the sweep."""
    if pid := running(layout):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        shell.wait_for("the processes to end", lambda: running(layout) is None, STOP_TIMEOUT_SEC)
