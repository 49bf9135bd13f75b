"""The command line: up, down, purge, status, env. One command at a time, whoever calls."""

import argparse
import fcntl
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from openclaw_cluster import addresses, down, layout, preflight, shell, status, up
from openclaw_cluster.console import console, say
from openclaw_cluster.errors import ClusterError

COMMANDS = {
    "up": "bring the cluster up; does nothing where it is up",
    "down": "end every process, mount, route and rule of it; data stays",
    "purge": "down, and remove its data",
    "status": "show what runs",
    "env": "print the shell lines that point tools at it",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="openclaw_cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in COMMANDS.items():
        commands.add_parser(name, help=text)
    command = parser.parse_args().command
    where = layout.from_environment()
    try:
        return _run(command, where)
    except (ClusterError, OSError) as error:
        full = preflight.full(where)
        if isinstance(error, OSError) and not full:
            raise
        console.print(full or str(error), style="red", markup=False)
        return 1


def _run(command: str, where: layout.Layout) -> int:
    context = os.environ.get("KUBECONTEXT", "")
    if command == "env":
        sys.stdout.write("\n".join(environment(where, context)) + "\n")
    elif command == "status":
        return 0 if status.status(where) else 1
    elif command == "up" and context:
        shell.run([kubectl(), "--context", context, "get", "--raw", "/readyz"])
        say(f"Using the cluster of context {context}; nothing is started.")
    else:
        actions = {"up": up.up, "down": down.down, "purge": down.purge}
        with _alone(where):
            actions[command](where)
    return 0


def environment(where: layout.Layout, context: str) -> list[str]:
    """Lines for `eval`, our commands on the PATH; a cluster somebody else runs has its own kubeconfig and registry."""
    beside = Path(sys.executable).parent
    path = f"export PATH={shlex.quote(f'{beside}:{where.tools}')}:$PATH"
    if context:
        return [f"export KUBECONTEXT={shlex.quote(context)}", path]
    return [
        f"export KUBECONFIG={shlex.quote(str(where.kubeconfig))}",
        f"export REGISTRY={addresses.REGISTRY}",
        path,
    ]


def kubectl() -> str:
    """The development environment's own, else PATH's."""
    beside = Path(sys.executable).parent / "kubectl"
    if found := (str(beside) if beside.exists() else shutil.which("kubectl")):
        return found
    raise ClusterError("kubectl is not installed: `make env` brings it")


@contextmanager
def _alone(where: layout.Layout) -> Iterator[None]:
    where.cache.mkdir(parents=True, exist_ok=True)
    with where.lock.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Waiting for another command on this cluster to finish …")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(main())
