import json
from typing import Any

import pytest

from examples.quickstart.verdict import Outcome, in_words


def outcome(**changes: Any) -> Outcome:
    good: dict[str, Any] = {
        "rate_before": 0.25,
        "rate_after": 0.85,
        "quality_before": 0.5,
        "quality_after": 0.5,
        "versions": 17,
        "windows_ms": [210.5, 198.0],
        "outside_window_503": 0,
        "lost": 0,
        "seconds": 512.34,
    }
    return Outcome(**good | changes)


def test_json_line_has_exactly_the_promised_keys() -> None:
    assert outcome().json_line() == (
        '{"learned":true,"rate_before":0.25,"rate_after":0.85,"quality_before":0.5,"quality_after":0.5,"versions":17,'
        '"windows_ms":[210.5,198.0],"outside_window_503":0,"lost":0,"seconds":512.3}'
    )


@pytest.mark.parametrize(
    "change",
    [
        {"rate_after": 0.79},
        {"rate_before": 0.6, "rate_after": 0.85},
        {"quality_before": 0.58, "quality_after": 0.25},
        {"versions": 2},
        {"outside_window_503": 1},
        {"lost": 1},
        {"lost": None},
        {"faults": ["quickstart-engine-x runs SGLang 0.5.22, not 0.5.23"]},
        {"rate_after": None},
        {"quality_before": None},
    ],
    ids=lambda change: ",".join(change),
)
def test_each_shortfall_alone_means_not_learned_and_is_named(change: dict[str, Any]) -> None:
    found = outcome(**change)
    assert not found.learned()
    assert json.loads(found.json_line())["learned"] is False
    assert len(found.shortfalls()) == 1
    assert found.shortfalls()[0] in in_words(found)


@pytest.mark.parametrize(
    "change",
    [
        {"rate_before": 0.5, "rate_after": 0.8},
        {"rate_before": 0.1 + 0.2 + 0.2, "rate_after": 0.8},
        {"quality_before": 7 / 12, "quality_after": 4 / 12},
        {"versions": 3},
    ],
)
def test_goals_met_exactly_are_met(change: dict[str, Any]) -> None:
    assert outcome(**change).learned()
