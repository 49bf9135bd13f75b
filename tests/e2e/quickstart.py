"""Runs the quickstart as a user would, in a namespace of its own, and reads its last line."""

import asyncio
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.quickstart.commands import Cluster
from tests.e2e import removal

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Run:
    """What the demo left: its exit code, its last line, everything it said."""

    code: int
    result: dict[str, Any]
    output: str


def run(*arguments: str, minutes: float, namespace: str, out: Path) -> Run:
    """The tiny model; cluster and images must be there (`make test` brings them). Bounded by minutes + 15."""
    line = [sys.executable, "-m", "examples.quickstart.demo", "--model", "tiny", "--no-build"]
    line += ["--minutes", str(minutes), "--namespace", namespace, "--out", str(out), *arguments]
    try:
        done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=(minutes + 15) * 60, check=False)
    finally:
        asyncio.run(removal.remove(Cluster.from_environment(), namespace))
    lines = done.stdout.strip().splitlines()
    output = done.stdout + done.stderr
    sys.stdout.write(output)
    return Run(done.returncode, json.loads(lines[-1]), output)
