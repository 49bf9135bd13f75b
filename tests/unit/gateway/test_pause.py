"""When submissions are paused: a pure state on one clock. Every mistake of a clock or an operator fails open."""

from datetime import UTC, datetime

import pytest

from openclaw_core.leases import Canary
from openclaw_gateway.pause import CLOCK_SKEW_SEC, Pause


def test_hold_ends_by_itself_at_its_length():
    pause = Pause()
    assert pause.hold(1, 120, now=10.0)
    assert pause.remaining(10.0) == 120
    assert pause.is_on(129.9)
    assert not pause.is_on(130.0)


def test_seeing_a_hold_again_extends_nothing():
    pause = Pause()
    pause.hold(1, 120, now=0.0)
    assert not pause.hold(1, 120, now=100.0)
    assert not pause.is_on(120.0)
    assert not pause.hold(1, 120, now=121.0)
    assert not pause.is_on(121.0)


def test_release_ends_the_hold_and_late_news_of_it_are_ignored():
    pause = Pause()
    pause.hold(3, 120, now=0.0)
    assert pause.release(3, "1-0a1b2c3d", now=1.0)
    assert not pause.is_on(1.0)
    assert pause.serving_version == "1-0a1b2c3d"
    assert not pause.hold(3, 120, now=2.0)
    assert not pause.is_on(2.0)


def test_older_epochs_change_nothing():
    pause = Pause()
    pause.hold(5, 120, now=0.0)
    assert not pause.release(4, "0-00000000", now=1.0)
    assert not pause.hold(4, 500, now=1.0)
    assert pause.is_on(119.0) and not pause.is_on(120.0)
    assert pause.serving_version is None


def test_bumped_epoch_is_a_hold_of_its_own():
    pause = Pause()
    pause.hold(1, 60, now=0.0)
    assert pause.hold(2, 60, now=50.0)
    assert pause.is_on(109.0) and not pause.is_on(110.0)


@pytest.mark.parametrize(
    ("age", "left"),
    [(0.0, 120), (4.0, 120), (65.0, 60), (125.0, 0), (600.0, 0), (-3600.0, 120)],
)
def test_age_at_first_sight_shortens_beyond_the_allowed_skew(age, left):
    assert CLOCK_SKEW_SEC == 5.0
    pause = Pause()
    pause.hold(1, 120, now=0.0, age_sec=age)
    assert pause.remaining(0.0) == left


def test_long_past_hold_is_ignored_for_good():
    pause = Pause()
    assert not pause.hold(7, 120, now=0.0, age_sec=9000)
    assert not pause.hold(7, 120, now=1.0)
    assert pause.hold(8, 120, now=2.0)


def waits(pause: Pause, *moments: tuple[float, int]) -> list[float]:
    return [round(pause.retry_after(now, retries), 3) for now, retries in moments]


def test_retry_after_follows_recent_holds_and_never_exceeds_what_is_left():
    pause = Pause()
    pause.hold(1, 120, now=0.0)
    assert waits(pause, (0.0, 0), (0.25, 0), (1.0, 0), (40.0, 0)) == [0.6, 0.475, 0.85, 20.35]
    pause.release(1, None, now=7.0)
    pause.hold(2, 120, now=20.0)
    assert waits(pause, (20.0, 0), (25.0, 0), (80.0, 0), (138.0, 0)) == [7.1, 2.279, 30.35, 2.35]
    pause.release(2, None, now=100.0)
    pause.hold(3, 10, now=200.0)
    assert waits(pause, (200.0, 0)) == [10.1]
    pause.hold(4, 900, now=300.0)
    assert waits(pause, (700.0, 0)) == [120.0]


@pytest.mark.parametrize("usual", [0.01, 0.3, 1.9, 2.0, 30.0])
@pytest.mark.parametrize("window", [0.1, 0.5, 1.0, 1.7, 2.0])
def test_window_of_two_seconds_is_over_when_a_stock_client_comes_back_for_the_last_time(usual: float, window: float):
    pause = Pause()
    pause.hold(1, 120, now=0.0)
    pause.release(1, None, now=usual)
    pause.hold(2, 120, now=100.0)
    for came in range(int(window * 100)):
        now, retries = 100 + came / 100, 0
        while now < 100 + window:
            now, retries = now + pause.retry_after(now, retries), retries + 1
        assert retries <= 2, came


def test_canary_answers_its_sessions_from_its_begin_to_its_end():
    pause = Pause()
    canary = Canary(version="2-0a1b2c3d", epoch=4, share=0.5, since=datetime(2026, 1, 1, tzinfo=UTC))
    pause.release(4, "1-0a1b2c3d", now=1.0, canary=canary)
    versions = {session: pause.version_for(session) for session in map(str, range(50))}
    assert set(versions.values()) == {"1-0a1b2c3d", "2-0a1b2c3d"}
    pause.hold(5, 30, now=2.0)
    pause.release(5, "1-0a1b2c3d", now=3.0, canary=canary)
    assert versions == {session: pause.version_for(session) for session in versions}
    pause.release(4, "1-0a1b2c3d", now=4.0)
    assert pause.canary is not None, "late news of an older epoch"
    pause.release(6, "1-0a1b2c3d", now=5.0)
    assert {pause.version_for(session) for session in versions} == {"1-0a1b2c3d"}
