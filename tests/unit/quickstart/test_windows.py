"""503 windows out of the Lease's states, and which refusals they cover."""

from datetime import UTC, datetime

import pytest

from examples.quickstart.windows import WindowLog, outside
from openclaw_core.leases import Hold, WeightSyncState

T0 = 1_800_000_000.0


def held(epoch: int, at: float, duration: int = 30) -> WeightSyncState:
    moment = datetime.fromtimestamp(at, UTC)
    hold = Hold(holder="op", epoch=epoch, acquired_at=moment, duration_sec=duration, pause_version=f"{epoch}-0a1b2c3d")
    return WeightSyncState(hold=hold, epoch=epoch)


def idle(epoch: int) -> WeightSyncState:
    return WeightSyncState(epoch=epoch)


def log_of(*states: tuple[WeightSyncState, float]) -> WindowLog:
    log = WindowLog()
    for state, seen_at in states:
        log.observe(state, seen_at)
    return log


def refusal(sent_at: float, answered_at: float, status: int = 503) -> tuple[float, float, int, str]:
    return (sent_at, answered_at, status, "weight_update")


def test_window_lasts_from_hold_to_release() -> None:
    log = log_of((idle(0), T0), (held(1, T0 + 10), T0 + 10.01), (idle(1), T0 + 10.26))
    assert log.closed_milliseconds() == [260.0]
    assert log.windows[0].version == "1-0a1b2c3d"


def test_hold_and_release_that_the_watch_brings_at_once_last_from_the_writing() -> None:
    log = log_of((idle(0), T0), (held(1, T0 + 10), T0 + 10.4), (idle(1), T0 + 10.4))
    assert log.closed_milliseconds() == [400.0]


def test_repeated_states_of_one_hold_are_one_window() -> None:
    log = log_of(
        (idle(0), T0), (held(1, T0 + 1), T0 + 1), (held(1, T0 + 1), T0 + 1.1), (idle(1), T0 + 2), (idle(1), T0 + 3)
    )
    assert log.closed_milliseconds() == [1000.0]


def test_hold_that_is_never_released_ends_at_its_expiry() -> None:
    log = log_of((idle(0), T0), (held(1, T0, 30), T0), (held(2, T0 + 100), T0 + 100))
    assert log.windows[0].ended_at == T0 + 30
    assert log.is_open(T0 + 101)
    assert not log.is_open(T0 + 131)


def test_hold_found_at_the_first_look_began_when_it_was_written() -> None:
    log = log_of((held(4, T0 - 5), T0), (idle(4), T0 + 1))
    assert log.closed_milliseconds() == [6000.0]


def test_epochs_the_watch_never_showed_are_counted() -> None:
    log = log_of((idle(2), T0), (held(5, T0 + 9), T0 + 9), (idle(6), T0 + 20))
    assert log.unseen_epochs == 3


def test_epochs_seen_held_and_released_are_not_counted_as_unseen() -> None:
    log = log_of((idle(0), T0), (held(1, T0), T0), (idle(1), T0 + 1), (held(2, T0 + 2), T0 + 2), (idle(2), T0 + 3))
    assert log.unseen_epochs == 0


@pytest.mark.parametrize(
    ("sent_at", "answered_at", "is_outside"),
    [
        (T0 + 10.1, T0 + 10.2, False),
        (T0 + 9.0, T0 + 10.1, False),
        (T0 + 10.9, T0 + 11.3, False),
        (T0 + 11.4, T0 + 11.41, False),
        (T0 + 11.6, T0 + 11.61, True),
        (T0 + 9.0, T0 + 9.4, True),
        (T0 + 50, T0 + 50.1, True),
    ],
    ids=["inside", "sent before", "answered after", "within the slack", "just after", "just before", "long after"],
)
def test_503_is_inside_when_its_time_meets_a_window(sent_at: float, answered_at: float, is_outside: bool) -> None:
    log = log_of((idle(0), T0), (held(1, T0 + 10), T0 + 10), (idle(1), T0 + 11))
    assert bool(outside([refusal(sent_at, answered_at)], log.windows)) is is_outside


def test_429_is_never_outside_and_503_without_any_window_is() -> None:
    assert outside([refusal(T0, T0, 429), refusal(T0, T0)], []) == [refusal(T0, T0)]


def test_503_after_an_unreleased_hold_expired_is_outside() -> None:
    log = log_of((idle(0), T0), (held(1, T0, 10), T0))
    assert outside([refusal(T0 + 9, T0 + 9)], log.windows) == []
    assert len(outside([refusal(T0 + 12, T0 + 12)], log.windows)) == 1
