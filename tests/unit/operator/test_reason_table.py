"""docs/conditions.md: fresh, and nothing is left unexplained."""

from pathlib import Path

from openclaw_core.status import ConditionType, Phase
from openclaw_operator import reason_table
from openclaw_operator.reasons import Reason

ROOT = Path(__file__).resolve().parents[3]


def test_every_condition_phase_and_reason_is_explained() -> None:
    assert set(reason_table.CONDITIONS) == set(ConditionType)
    assert set(reason_table.PHASES) == set(Phase)
    assert set(reason_table.MEANINGS) == set(Reason)


def test_page_is_fresh() -> None:
    assert (ROOT / reason_table.PAGE).read_text() == reason_table.page(), "run `make generate`"
