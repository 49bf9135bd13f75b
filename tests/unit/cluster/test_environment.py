"""The lines that a person's shell evaluates."""

import subprocess
import sys
from pathlib import Path

import pytest

from openclaw_cluster import layout
from openclaw_cluster.__main__ import environment


@pytest.mark.parametrize("context", ["", "somebody's"])
def test_shell_finds_our_own_commands_from_any_directory(context: str, tmp_path: Path) -> None:
    lines = environment(layout.from_environment({"HOME": str(tmp_path / "a home")}), context)
    script = "\n".join([*lines, "command -v python", 'echo "$KUBECONTEXT|$KUBECONFIG"'])
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path, timeout=30)
    python, named = done.stdout.splitlines()
    assert Path(python).parent == Path(sys.executable).parent
    kubeconfig = str(tmp_path / "a home" / ".cache" / "openclaw-training" / "cluster" / "kubeconfig")
    assert named.endswith("somebody's|" if context else f"|{kubeconfig}")
