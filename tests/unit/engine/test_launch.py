"""The admin key on its way into the SGLang process."""

import io

import pytest

from openclaw_engine import launch


def test_key_is_the_first_line_of_standard_input() -> None:
    assert launch.read_key(io.StringIO("k3y\nmore")) == "k3y"


@pytest.mark.parametrize("given", ["", "\n", "  \n"])
def test_missing_key_ends_the_process(given: str) -> None:
    with pytest.raises(SystemExit, match="no admin key"):
        launch.read_key(io.StringIO(given))
