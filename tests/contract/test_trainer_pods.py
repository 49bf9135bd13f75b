"""A trainer of several pods with torch's own torchrun: the pods meet, and the first one leads."""

import os
import socket
import subprocess
from pathlib import Path

import pytest

from openclaw_trainer import main

pytestmark = [pytest.mark.contract, pytest.mark.timeout(240)]


def test_pods_meet_with_the_first_pod_as_the_lead(tmp_path: Path) -> None:
    script = tmp_path / "rank.py"
    script.write_text("import os; open(os.environ['NAME'], 'w').write(os.environ['RANK'] + os.environ['WORLD_SIZE'])")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        meeting = f"127.0.0.1:{probe.getsockname()[1]}"
    pods = []
    for number in ("1", "0"):
        line = main.torchrun(1, 2, {"OPENCLAW_NODE_RANK": number, "OPENCLAW_RENDEZVOUS": meeting})
        environ = os.environ | {"NAME": str(tmp_path / number), "OMP_NUM_THREADS": "1"}
        pods.append(subprocess.Popen([*line[:-2], str(script)], env=environ, stderr=subprocess.DEVNULL))
    assert [pod.wait(100) for pod in pods] == [0, 0]
    assert [(tmp_path / number).read_text() for number in ("0", "1")] == ["02", "12"]
