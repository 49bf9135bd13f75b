"""The daemon that keeps the cluster's processes alive; `up` starts it, `down` ends it with SIGTERM.

One loop, one thread, ten times a second:

    plan file (SIGHUP rereads it) ──▶ decide() ──▶ start · stop · wait
                                        ▲
    children: exited? probe answered? ──┘

A process starts when all before it in the plan are ready. A dead one starts again after a backoff of 0.5 s that
doubles to 15 s and returns to 0.5 s once it has lived for a minute. Children get SIGTERM when the supervisor itself
is killed, so a cluster is never half watched.
"""

import ctypes
import http.client
import logging
import os
import signal
import socket
import ssl
import subprocess
import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from openclaw_cluster import layout as layouts
from openclaw_cluster import pods, processes, shell
from openclaw_cluster.processes import Process

TICK_SEC = 0.1
FIRST_BACKOFF_SEC = 0.5
LAST_BACKOFF_SEC = 15.0
SETTLED_SEC = 60.0
PROBE_TIMEOUT_SEC = 1.0
LOG_LIMIT_BYTES = 20 << 20
PR_SET_PDEATHSIG = 1

log = logging.getLogger("supervisor")
_libc = ctypes.CDLL(None)


class Step(Enum):
    START = "start"
    STOP = "stop"
    PROBE = "probe"
    NONE = "none"


@dataclass
class Child:
    process: Process
    """What runs, or ran last."""
    running: subprocess.Popen[bytes] | None = None
    ready: bool = False
    started: float = 0
    not_before: float = 0
    backoff_sec: float = FIRST_BACKOFF_SEC
    stop_asked: float | None = None


def decide(child: Child, wanted: Process | None, earlier_ready: bool, now: float) -> Step:
    """What to do about one process now. `earlier_ready`: all that come before it have answered their probes."""
    if child.running is None:
        return Step.START if wanted and earlier_ready and now >= child.not_before else Step.NONE
    if child.process != wanted:
        return Step.STOP
    return Step.NONE if child.ready else Step.PROBE


def next_backoff(lived_sec: float, backoff_sec: float) -> float:
    return FIRST_BACKOFF_SEC if lived_sec > SETTLED_SEC else min(backoff_sec * 2, LAST_BACKOFF_SEC)


class Supervisor:
    def __init__(self, layout: layouts.Layout) -> None:
        self._layout = layout
        self._wanted: list[Process] = []
        self._children: dict[str, Child] = {}
        self._reread = True
        self._ending = False

    def run(self) -> None:
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "_ending", True))
        signal.signal(signal.SIGHUP, lambda *_: setattr(self, "_reread", True))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while not self._ending:
            if self._reread:
                self._reread = False
                self._wanted = processes.load(self._layout.plan)
                log.info("plan: %s", ", ".join(process.name for process in self._wanted))
            self._tick(time.monotonic())
            time.sleep(TICK_SEC)
        self._stop_everything()

    def _tick(self, now: float) -> None:
        earlier_ready = True
        wanted = {process.name: process for process in self._wanted}
        for name in [*wanted, *(name for name in self._children if name not in wanted)]:
            target = wanted.get(name)
            child = self._children.setdefault(name, Child(target or Process(name, ())))
            self._reap(child, now)
            step = decide(child, target, earlier_ready, now)
            if step is Step.START and target:
                self._start(child, target, now)
            elif step is Step.STOP:
                self._stop(child, now)
            elif step is Step.PROBE:
                child.ready = answers(child.process.ready, self._layout.pki / "ca.crt")
            earlier_ready = earlier_ready and (child.ready or target is None)
        self._report()

    def _report(self) -> None:
        """Tell `up` and `status` which configuration of each process is running and ready."""
        ready = [c.process for c in self._children.values() if c.running is not None and c.ready and not c.stop_asked]
        shell.write_if_changed(self._layout.running, processes.dump(ready))

    def _reap(self, child: Child, now: float) -> None:
        if child.running is None or (code := child.running.poll()) is None:
            return
        asked = child.stop_asked is not None
        log.log(logging.INFO if asked else logging.WARNING, "%s exited with %s", child.process.name, code)
        child.backoff_sec = FIRST_BACKOFF_SEC if asked else next_backoff(now - child.started, child.backoff_sec)
        child.not_before = now if asked else now + child.backoff_sec
        child.running, child.ready, child.stop_asked = None, False, None

    def _start(self, child: Child, process: Process, now: float) -> None:
        path = self._layout.logs / f"{process.name}.log"
        if path.exists() and path.stat().st_size > LOG_LIMIT_BYTES:
            path.replace(path.with_suffix(".log.1"))
        child.process, child.started, child.ready = process, now, not process.ready
        try:
            with path.open("ab") as output:
                child.running = subprocess.Popen(
                    process.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **dict(process.env)},
                    start_new_session=True,
                    preexec_fn=die_with_parent,
                )
        except OSError as error:
            log.error("%s cannot start: %s", process.name, error)
            child.backoff_sec = next_backoff(0, child.backoff_sec)
            child.not_before = now + child.backoff_sec
            return
        (self._layout.run / f"{process.name}.pid").write_text(f"{child.running.pid}\n")
        log.info("%s started as %d", process.name, child.running.pid)

    def _stop(self, child: Child, now: float) -> None:
        if child.running is None:
            return
        if child.stop_asked is None:
            child.stop_asked = now
            child.running.terminate()
        elif now - child.stop_asked > child.process.stop_sec:
            child.running.kill()

    def _stop_everything(self) -> None:
        for process in reversed(self._wanted):
            child = self._children.get(process.name)
            if child is None or child.running is None:
                continue
            if process.drains_pods and child.running.poll() is None:
                pods.stop_all(self._layout)
            child.running.terminate()
            try:
                child.running.wait(process.stop_sec)
            except subprocess.TimeoutExpired:
                child.running.kill()
                child.running.wait()
            log.info("%s ended", process.name)


def die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def answers(probe: str, authority: Path) -> bool:
    kind, _, target = probe.partition(":")
    try:
        if kind == "tcp":
            host, _, port = target.rpartition(":")
            socket.create_connection((host, int(port)), PROBE_TIMEOUT_SEC).close()
        elif kind == "unix":
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(PROBE_TIMEOUT_SEC)
                connection.connect(target)
        else:
            return _https_ok(target, authority)
    except (OSError, http.client.HTTPException):
        return False
    return True


def _https_ok(url: str, authority: Path) -> bool:
    host, _, path = url.removeprefix("https://").partition("/")
    context = ssl.create_default_context(cafile=str(authority))
    connection = http.client.HTTPSConnection(host, context=context, timeout=PROBE_TIMEOUT_SEC)
    try:
        connection.request("GET", f"/{path}")
        return connection.getresponse().status == http.client.OK
    finally:
        connection.close()


def main() -> None:
    layout = layouts.from_environment()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    layout.supervisor_pid.write_text(f"{os.getpid()}\n")
    try:
        Supervisor(layout).run()
    finally:
        layout.supervisor_pid.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
