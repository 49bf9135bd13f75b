import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_core.staleness import Backlog, capacity, is_stale, lag


@pytest.mark.parametrize(("eta", "batch", "expected"), [(0, 4, 4), (2, 4, 12), (1, 16, 32)])
def test_capacity_of_an_empty_store_is_the_whole_budget(eta: int, batch: int, expected: int) -> None:
    assert capacity(Backlog(), max_head_off_policyness=eta, rollout_batch_size=batch, max_concurrent=256) == expected


def test_capacity_counts_every_place_a_turn_can_be() -> None:
    backlog = Backlog(generating=1, waiting=2, queued=3, leased=4, unpublished=1)
    assert capacity(backlog, max_head_off_policyness=2, rollout_batch_size=4, max_concurrent=256) == 1


def test_capacity_is_bounded_by_concurrency() -> None:
    assert capacity(Backlog(generating=3), max_head_off_policyness=9, rollout_batch_size=9, max_concurrent=4) == 1


@given(st.integers(0, 8), st.integers(1, 64), st.integers(0, 500))
def test_capacity_never_admits_beyond_the_budget(eta: int, batch: int, queued: int) -> None:
    room = capacity(
        Backlog(queued=queued), max_head_off_policyness=eta, rollout_batch_size=batch, max_concurrent=10_000
    )
    assert max(room, 0) + queued <= max((eta + 1) * batch, queued)


def test_lag_is_measured_from_the_oldest_span() -> None:
    assert lag(7, [5, 7]) == 2
    assert lag(3, [4]) == 0


def test_lag_without_spans_is_an_error() -> None:
    with pytest.raises(ValueError, match="spans"):
        lag(3, [])


def test_stale_filter_keeps_its_bound() -> None:
    assert not is_stale(8, 8)
    assert is_stale(9, 8)
