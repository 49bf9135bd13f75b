"""The steps of an exchange: whatever fails, SGLang is continued."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_engine import machine
from openclaw_engine.machine import Exchange, Step


def exchange(**changes: object) -> Exchange:
    return Exchange(**({"epoch": 3, "version": "2-aaaaaaaa", "began": 0.0, "deadline": 10.0} | changes))  # type: ignore[arg-type]


def walk(
    start: Exchange, failures: dict[Step, int], seconds: dict[Step, float] | None = None
) -> tuple[list[Step], Exchange]:
    """Take steps until the end; each named step fails that many times. Returns the steps and the last state."""
    now, steps, left = 0.0, [], dict(failures)
    while (step := machine.next_step(start, now)) not in (Step.DONE, Step.LOST):
        steps.append(step)
        began, now = now, now + (seconds or {}).get(step, 0.1)
        error = f"{step} failed" if left.get(step, 0) > 0 else None
        left[step] = left.get(step, 0) - 1
        start = machine.after(start, step, began, now, error)
    return [*steps, step], start


def test_exchange_pauses_updates_verifies_and_continues() -> None:
    steps, last = walk(exchange(), {})
    assert steps == [Step.PAUSE, Step.UPDATE, Step.VERIFY, Step.CONTINUE, Step.DONE]
    assert last.ok and machine.outcome(last) is None
    assert last.pause_sec == pytest.approx(0.4)
    assert last.update_sec == pytest.approx(0.1)


def test_exchange_with_drain_waits_before_the_pause() -> None:
    steps, _ = walk(exchange(drain=True), {})
    assert steps[:2] == [Step.DRAIN, Step.PAUSE]


def test_drain_that_does_not_end_is_followed_by_the_pause() -> None:
    steps, last = walk(exchange(drain=True), {Step.DRAIN: 1})
    assert steps[1] is Step.PAUSE
    assert last.ok


def test_drain_may_use_half_of_the_time() -> None:
    assert machine.time_limit(exchange(drain=True), Step.DRAIN, 2.0) == pytest.approx(4.0)


@pytest.mark.parametrize("failing", [Step.PAUSE, Step.UPDATE, Step.VERIFY])
def test_failed_step_is_followed_by_continue(failing: Step) -> None:
    steps, last = walk(exchange(), {failing: 1})
    assert steps[-3:] == [failing, Step.CONTINUE, Step.DONE]
    assert machine.outcome(last) == f"{failing} failed"


def test_deadline_in_the_update_is_followed_by_continue() -> None:
    steps, last = walk(exchange(), {}, {Step.UPDATE: 20.0})
    assert steps == [Step.PAUSE, Step.UPDATE, Step.CONTINUE, Step.DONE]
    assert machine.outcome(last) == "the deadline passed before 2-aaaaaaaa was loaded"


def test_continue_is_tried_again_until_it_works() -> None:
    steps, last = walk(exchange(), {Step.CONTINUE: 3})
    assert steps.count(Step.CONTINUE) == 4
    assert last.continued_at is not None


def test_continue_that_never_works_gives_the_container_up() -> None:
    steps, _ = walk(exchange(), {Step.CONTINUE: 10_000})
    assert steps[-1] is Step.LOST


def test_exchange_past_its_deadline_never_pauses() -> None:
    assert machine.next_step(exchange(), 10.0) is Step.DONE


def test_exchange_that_failed_before_the_pause_never_pauses() -> None:
    assert machine.next_step(exchange(error="incomplete"), 0.0) is Step.DONE


@given(
    st.dictionaries(
        st.sampled_from([Step.DRAIN, Step.PAUSE, Step.UPDATE, Step.VERIFY, Step.CONTINUE]), st.integers(0, 5)
    ),
    st.dictionaries(st.sampled_from(list(Step)[:5]), st.floats(0.01, 30.0)),
    st.booleans(),
)
def test_pause_is_always_followed_by_a_continue(
    failures: dict[Step, int], seconds: dict[Step, float], drain: bool
) -> None:
    steps, last = walk(exchange(drain=drain), failures, seconds)
    if Step.PAUSE in steps:
        assert Step.CONTINUE in steps or steps[-1] is Step.LOST
        assert not last.paused or steps[-1] is Step.LOST


def test_older_epoch_is_refused() -> None:
    with pytest.raises(machine.RefusedError, match="epoch 4 is older than 5") as refusal:
        machine.admit(5, None, 4)
    assert refusal.value.code == "stale_epoch"


def test_same_and_newer_epochs_are_taken() -> None:
    assert machine.admit(5, None, 5) == 5
    assert machine.admit(5, None, 9) == 9


def test_second_sync_is_refused_while_one_runs() -> None:
    with pytest.raises(machine.RefusedError, match="still running") as refusal:
        machine.admit(3, exchange(), 4)
    assert refusal.value.code == "busy"
