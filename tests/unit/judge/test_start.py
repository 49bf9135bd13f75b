"""What keeps the judge from starting, by the words an admin reads."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openclaw_core.config.components import ConfigError, JudgeConfig
from openclaw_judge.__main__ import gateway_token, judge_key, main


def config(**api: Any) -> JudgeConfig:
    return JudgeConfig.model_validate(
        {
            "training": "t",
            "namespace": "n",
            "gateway_url": "http://gateway:30001",
            "endpoint": "http://judge/v1",
            "reward_judging": {},
            "api": {"api_key_env": "JUDGE_KEY"} | api,
            "judge": {"model": "prm"},
        }
    )


WITH_SECRET = config(api_key_secret_ref={"name": "judge", "key": "api-key"})


@pytest.mark.parametrize("value", ["", "  ", "changeme", "<your key>", "sk-xxxx", "${JUDGE_KEY}", "YOUR_API_KEY"])
def test_judge_key_that_is_empty_or_a_placeholder_names_variable_and_secret(value: str) -> None:
    with pytest.raises(ConfigError) as error:
        judge_key(WITH_SECRET, {"JUDGE_KEY": value})
    text = str(error.value)
    assert "JUDGE_KEY" in text and "'judge'" in text and "'api-key'" in text
    assert not value.strip() or value not in text.replace("JUDGE_KEY", "")


def test_judge_key_comes_from_the_named_variable() -> None:
    assert judge_key(WITH_SECRET, {"JUDGE_KEY": " s3cr3t-value\n"}) == "s3cr3t-value"


def test_judge_key_is_not_asked_for_without_a_secret_reference() -> None:
    assert judge_key(config(), {}) is None


def test_gateway_token_missing_names_the_variable() -> None:
    with pytest.raises(ConfigError, match="OPENCLAW_GATEWAY_TOKEN"):
        gateway_token({})


@pytest.fixture
def root_logger() -> Iterator[None]:
    """`main` takes the root logger over; later tests want theirs back."""
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    logging.root.handlers[:], logging.root.level = handlers, level


@pytest.mark.usefixtures("root_logger")
def test_main_exits_2_and_logs_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.json"
    file.write_text(WITH_SECRET.model_dump_json())
    monkeypatch.setenv("OPENCLAW_CONFIG", str(file))
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    assert main() == 2
    assert "JUDGE_KEY is empty" in json.loads(capsys.readouterr().err.splitlines()[-1])["message"]
