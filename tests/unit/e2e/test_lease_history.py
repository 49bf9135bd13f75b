"""The fold over the Leases finds what must never be seen."""

from datetime import UTC, datetime

import pytest

from openclaw_core.leases import Hold, Published, WeightSyncState
from openclaw_core.versions import WeightVersion
from tests.e2e.lease_history import LeaseHistory

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def published(number: int, epoch: int, digest8: str = "0a1b2c3d") -> Published:
    return Published(version=WeightVersion(number=number, digest8=digest8), digest=digest8 * 8, trainer_epoch=epoch)


def held(epoch: int) -> WeightSyncState:
    return WeightSyncState(epoch=epoch, hold=Hold(holder="o", epoch=epoch, acquired_at=NOW, duration_sec=10))


def test_history_of_a_trainer_that_resumes_has_no_fault_and_names_its_first_version() -> None:
    history = LeaseHistory()
    for state in (published(1, 1), published(2, 1), published(2, 2), published(3, 2)):
        history.see_published(state)
    assert history.faults() == []
    assert str(history.first_announced_by(2)) == "3-0a1b2c3d"
    assert history.first_announced_by(3) is None
    assert history.announced_number() == 3


def test_history_knows_when_a_version_was_left_until_it_is_served_again() -> None:
    history = LeaseHistory()
    for number, now in ((1, 10.0), (2, 20.0), (2, 25.0), (3, 30.0), (1, 40.0)):
        history.see_weight_sync(WeightSyncState(serving_version=f"{number}-0a1b2c3d"), now)
    assert history.left_at == {"2-0a1b2c3d": 30.0, "3-0a1b2c3d": 40.0}


@pytest.mark.parametrize(
    ("states", "fault"),
    [
        ([published(1, 1), published(1, 2, "ffffffff")], "announced version 1 came after 1"),
        ([published(2, 1), published(1, 1)], "announced version 1 came after 2"),
        ([published(1, 2), published(2, 1)], "trainer epoch 1 came after 2"),
    ],
)
def test_history_names_reused_numbers_and_trainers_of_the_past(states: list[Published], fault: str) -> None:
    history = LeaseHistory()
    for state in states:
        history.see_published(state)
    assert history.faults() == [fault]


def test_history_counts_a_hold_once_and_names_an_epoch_used_twice() -> None:
    history = LeaseHistory()
    for moment, state in enumerate((held(1), held(1), WeightSyncState(epoch=1), held(2))):
        history.see_weight_sync(state, float(moment))
    assert [(seen.hold.epoch, seen.seen_at) for seen in history.holds] == [(1, 0.0), (2, 3.0)]
    assert history.faults() == []
    history.see_weight_sync(WeightSyncState(epoch=2), 4.0)
    history.see_weight_sync(held(2), 5.0)
    assert history.faults() == ["epoch of a hold 2 came after 2"]


def test_history_names_a_served_version_that_went_back() -> None:
    history = LeaseHistory()
    for version in ("1-0a1b2c3d", "3-0a1b2c3d", "3-0a1b2c3d", "2-0a1b2c3d"):
        history.see_weight_sync(WeightSyncState(serving_version=version), 0.0)
    assert history.faults() == ["served version 2 came after 3"]
