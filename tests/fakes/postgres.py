"""A throwaway PostgreSQL: a real server in a temporary directory, run by a user that is not root.

On a unix socket, and where it is told to also on an address of this machine, for pods of the embedded cluster.
"""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_PROGRAMS = Path("/usr/lib/postgresql")  # where Debian keeps them, by major version
_START_SEC = 30.0
_PORT = 25432


class Server:
    """`url` connects to it; `kill` and `start` are an outage."""

    def __init__(self, directory: Path, address: str = "", clients: str = "") -> None:
        self.directory, self._user, self._address = directory, _user(), address
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"postgresql://openclaw@/postgres?host={directory}&port={_PORT}"
        self._run("initdb", "--pgdata", "data", "--username", "openclaw", "--auth", "trust", "--no-sync")
        if clients:
            with (directory / "data" / "pg_hba.conf").open("a") as rules:
                rules.write(f"host all all {clients} trust\n")

    def url_for_pods(self) -> str:
        """As pods reach it."""
        return f"postgresql://openclaw@{self._address}:{_PORT}/postgres"

    def start(self) -> None:
        settings = (
            f"listen_addresses={self._address}",
            f"port={_PORT}",
            f"unix_socket_directories={self.directory}",
            "shared_buffers=32MB",
        )
        options = [part for setting in settings for part in ("-c", setting)]
        self._process = subprocess.Popen(
            [_program("postgres"), "-D", "data", *options],
            cwd=self.directory,
            user=self._user,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + _START_SEC
        while self._run("pg_isready", "--port", str(_PORT), "--host", str(self.directory), check=False) != 0:
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError("PostgreSQL did not start")
            time.sleep(0.05)

    def kill(self) -> None:
        """As a machine that loses power: no goodbye to anybody."""
        if self._process is not None:
            children = subprocess.run(
                ["ps", "-o", "pid=", "--ppid", str(self._process.pid)], capture_output=True, text=True, check=False
            )
            self._process.kill()
            self._process.wait()
            for child in children.stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(child), signal.SIGKILL)
            self._process = None

    def query(self, sql: str) -> None:
        self._run(
            "psql", "--port", str(_PORT), "--host", str(self.directory), "--username", "openclaw", "-c", sql, "postgres"
        )

    def files(self) -> Iterator[bytes]:
        """What lies in the data files, the write-ahead log left out."""
        for file in (self.directory / "data" / "base").rglob("*"):
            if file.is_file():
                yield file.read_bytes()

    def _run(self, program: str, *arguments: str, check: bool = True) -> int:
        command = [_program(program), *arguments]
        return subprocess.run(command, cwd=self.directory, user=self._user, capture_output=True, check=check).returncode


@contextlib.contextmanager
def running(address: str = "", clients: str = "") -> Iterator[Server]:
    """`clients`: who may come to `address`, as a range of addresses."""
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # fsync costs nothing there
    directory = Path(tempfile.mkdtemp(prefix="openclaw-pg-", dir=memory))
    if (user := _user()) is not None:
        os.chown(directory, user, -1)
    server = Server(directory, address, clients)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(directory)


def _user() -> int | None:
    """PostgreSQL refuses to run as root."""
    return pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None


def _program(name: str) -> str:
    found = sorted(_PROGRAMS.glob(f"*/bin/{name}"), key=lambda path: float(path.parts[4]))
    if not found:
        raise RuntimeError("PostgreSQL is not installed; `make postgres` installs Debian's package")
    return str(found[-1])
