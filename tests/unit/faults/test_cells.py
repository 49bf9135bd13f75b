"""What makes a cell of the fault matrix wrong, and the page of all of them."""

import pytest

from tests.faults import cells
from tests.faults.cells import Cell
from tests.faults.client import Silence

ALL_OK = [Cell(*key, "n/a" if cells.impossible(key[0], key[2]) else "ok", 2.0, 3.0) for key in cells.EVERY]


def test_silence_is_bounded_by_the_pause_and_by_the_time_without_a_gateway() -> None:
    silences = [Silence(refused=0.0, held=2.0), Silence(refused=4.0, held=8.5)]
    assert not cells.in_time(silences, "agent", "hang", 0.0)
    assert cells.in_time(silences, "gateway", "kill -9", 2.0)
    assert cells.in_time(silences[:1], "agent", "hang", 0.0)


@pytest.mark.parametrize(
    ("refused", "held", "fine"),
    [(3.5, 8.4, True), (3.5, 12.1, True), (0.0, 14.1, False), (12.1, 0.0, False), (11.9, 13.9, True)],
)
def test_engine_that_hangs_may_hold_a_request_for_its_hang_but_not_lengthen_the_503(
    refused: float, held: float, fine: bool
) -> None:
    assert cells.in_time([Silence(refused, held)], "engine", "hang", 0.0) is fine
    assert not cells.in_time([Silence(refused, 14.1)], "engine", "hang", 0.0)


def test_verdict_names_everything_that_was_wrong() -> None:
    assert cells.verdict(lost=0, converged=True, answered=True) == "ok"
    assert cells.verdict(lost=1, converged=False, answered=False) == "diverged stuck lost"


@pytest.mark.parametrize("result", ["stuck", "lost", "diverged (the lease)", "missed (Pausing was over)"])
def test_matrix_with_one_wrong_cell_does_not_pass_and_counts_it(result: str) -> None:
    assert cells.passed(ALL_OK, cells.EVERY)
    wrong = [*ALL_OK[:-1], Cell(*cells.EVERY[-1], result)]
    assert not cells.passed(wrong, cells.EVERY)
    counted = cells.summary(wrong)
    assert (counted.pop("cells"), sum(counted.values()), counted[result.split()[0]]) == (85, 1, 1)


def test_matrix_with_a_chosen_cell_that_did_not_end_does_not_pass() -> None:
    assert not cells.passed(ALL_OK[:-1], cells.EVERY)
    assert cells.passed(ALL_OK[:-1], cells.EVERY[:-1])


def test_table_has_a_row_for_each_process_and_fault() -> None:
    lines = cells.table(ALL_OK).splitlines()
    assert len(lines) == 2 + len(cells.ACTORS) * len(cells.FAULTS)
    assert lines[2] == "| operator | kill -9 |" + " ok, 2.0 s, 3.0 s |" * 5
