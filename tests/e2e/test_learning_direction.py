"""Whether it is really the users' words that teach: other words, other lesson; no step, no lesson."""

import re
from pathlib import Path

import pytest

from tests.e2e import quickstart

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_swapped_reactions_reverse_what_is_learned(tmp_path: Path) -> None:
    # Users praise what they dislike. The reward rises all the same (the judge only hears the words), and the
    # answers they would really like disappear.
    found = quickstart.run(
        "--reactions=swapped", "--max-updates=25", minutes=8, namespace="openclaw-e2e-swapped", out=tmp_path
    )
    assert found.result["learned"] is False
    assert found.code != 0
    assert found.result["versions"] >= 10
    assert found.result["rate_after"] <= min(0.05, found.result["rate_before"])
    praised = [float(share) for share in re.findall(r"liked \(last 3 batches\) (\d+)%", found.output)]
    assert max(praised) >= 90
    assert found.result["lost"] == found.result["outside_window_503"] == 0


def test_learning_rate_zero_learns_nothing_and_says_so(tmp_path: Path) -> None:
    found = quickstart.run(
        "--learning-rate=0", "--max-updates=8", minutes=5, namespace="openclaw-e2e-zero", out=tmp_path
    )
    assert found.result["learned"] is False
    assert found.code != 0
    assert found.result["rate_after"] < 0.5
    assert "It did not pass" in found.output
