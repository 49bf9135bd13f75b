"""How a judge model's container becomes SGLang, or ends with words."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from openclaw_core import names
from openclaw_core.base_model import ModelMissingError
from openclaw_engine import judge_model

LAUNCH = '''"""Stands in for SGLang's entry."""
import json, os, sys
print(json.dumps({"arguments": sys.argv[1:], "key": sys.stdin.readline().strip(), "pid": os.getpid()}))
'''


def test_process_becomes_sglang_with_a_key_nobody_else_has(tmp_path: Path) -> None:
    package = tmp_path / "openclaw_engine"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "launch.py").write_text(LAUNCH)
    script = (
        "from openclaw_engine import judge_model\n"
        f"judge_model.become_sglang(['--port', '1'], {{'PYTHONPATH': {str(tmp_path)!r}}})"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    said, complaint = process.communicate(timeout=60)
    found = json.loads(said)
    assert (found["arguments"], found["pid"]) == (["--port", "1"], process.pid), complaint
    assert len(found["key"]) >= 32 and found["key"].encode() not in complaint


def test_model_that_does_not_come_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ModelMissingError, match=r"spec\.rewardJudging\.deployed\.model\.path: there is no .*/late/config"
    ):
        judge_model.until_there(str(tmp_path / "late"), wait_sec=0)


def test_model_on_the_volume_or_of_the_hub_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    judge_model.until_there(str(tmp_path), wait_sec=0)
    judge_model.until_there("me/judge", wait_sec=0)


def test_faulty_configuration_ends_the_start_with_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    config = {
        "training": "demo",
        "namespace": "lab",
        "model": {"path": "judge"},
        "servedName": "judge",
        "device": "cpu",
        "tensorParallelSize": 1,
        "args": ["--port=1"],
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    monkeypatch.setenv(names.ENV_CONFIG, str(tmp_path / "config.json"))
    with pytest.raises(SystemExit, match="1"):
        judge_model.main()
    assert "rewardJudging.deployed.args may not hold --port" in "".join(capfd.readouterr())
