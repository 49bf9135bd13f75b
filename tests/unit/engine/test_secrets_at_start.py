"""What the engine refuses at its start."""

import pytest

from openclaw_core.config.components import ConfigError
from openclaw_engine.__main__ import agent_token


def test_token_of_the_agent_is_needed() -> None:
    with pytest.raises(ConfigError, match="OPENCLAW_AGENT_TOKEN is empty"):
        agent_token({"OPENCLAW_AGENT_TOKEN": " "})
    assert agent_token({"OPENCLAW_AGENT_TOKEN": "drawn"}) == "drawn"


@pytest.mark.parametrize("value", ["", "<your token>"])
def test_model_token_that_cannot_be_meant_is_refused_by_name(value: str) -> None:
    with pytest.raises(ConfigError, match=r"HF_TOKEN is .*model\.huggingFace\.tokenSecretRef"):
        agent_token({"OPENCLAW_AGENT_TOKEN": "drawn", "HF_TOKEN": value})
