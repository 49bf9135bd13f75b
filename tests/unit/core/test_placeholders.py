"""What no secret can be, and that a fault names the variable and never its value."""

import pytest

from openclaw_core import placeholders


@pytest.mark.parametrize(
    "value", ["changeme", "<key>", "sk-xxxx", "${KEY}", "YOUR_API_KEY", "none", "my-key", "...", "…"]
)
def test_placeholder_is_a_fault_that_names_the_variable_alone(value: str) -> None:
    fault = placeholders.variable_fault({"HF_TOKEN": value}, "HF_TOKEN")
    assert fault == "environment variable HF_TOKEN is a placeholder"


def test_empty_is_a_fault_and_absent_is_none() -> None:
    assert placeholders.variable_fault({"HF_TOKEN": "  "}, "HF_TOKEN") == "environment variable HF_TOKEN is empty"
    assert placeholders.variable_fault({}, "HF_TOKEN") is None


@pytest.mark.parametrize("value", ["hf_AbCdEf0123", "sk-proj-9f8e7d", "s3cret", "nonesuch"])
def test_value_that_may_be_real_is_none(value: str) -> None:
    assert placeholders.fault(value) is None
