"""What the environment refuses at its start."""

import pytest

from openclaw_core.config.components import ConfigError
from openclaw_environment.__main__ import api_key


@pytest.mark.parametrize("value", ["", " ", "changeme", "<key>"])
def test_gateway_key_that_cannot_be_meant_is_refused_by_name(value: str) -> None:
    with pytest.raises(ConfigError, match=r"OPENCLAW_API_KEY is .*policyServing\.gateway\.apiKeySecretRef"):
        api_key({"OPENCLAW_API_KEY": value})


def test_gateway_without_keys_needs_none() -> None:
    assert api_key({}) is None
    assert api_key({"OPENCLAW_API_KEY": " s3cret\n"}) == "s3cret"
