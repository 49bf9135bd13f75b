"""What the supervisor keeps alive: specifications as plain values, and their file form."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    name: str
    argv: tuple[str, ...]
    ready: str = ""
    """What tells that those after it may start: `tcp:HOST:PORT`, `unix:PATH`, `https:URL`; empty: at once."""
    stop_sec: float = 10
    """How long it may take to end after SIGTERM before SIGKILL."""
    drains_pods: bool = False
    """Containers are ended while it still runs, before it is stopped."""
    configuration: str = ""
    """Hash of the files it reads; another value restarts it."""
    env: tuple[tuple[str, str], ...] = ()


def dump(processes: list[Process]) -> str:
    return json.dumps([asdict(process) for process in processes], indent=1)


def load(path: Path) -> list[Process]:
    def pairs(value: list[list[str]]) -> tuple[tuple[str, str], ...]:
        return tuple((key, text) for key, text in value)

    return [
        Process(**{**fields, "argv": tuple(fields["argv"]), "env": pairs(fields["env"])})
        for fields in json.loads(path.read_text())
    ]
