"""The comparison of checkpoints and store finds every kind of double or lost training."""

from tests.e2e.consumed_samples import ConsumedSamples


def consumed(*checkpoints: dict[int, list[int]]) -> ConsumedSamples:
    found = ConsumedSamples()
    for seen in checkpoints:
        found.add(seen)
    return found


def test_consumed_samples_in_order_show_no_fault() -> None:
    found = consumed({1: [1, 2], 2: [3]}, {2: [3], 3: [4]})
    assert found.trained_twice() == found.gaps() == found.rewritten == []
    assert found.never_settled(frozenset({1, 2, 3}), newest_before=3) == []
    assert found.never_consumed(frozenset({1, 2, 3})) == []


def test_consumed_samples_name_an_id_in_two_steps() -> None:
    assert consumed({1: [1, 2], 2: [2, 3]}).trained_twice() == [2]


def test_consumed_samples_name_a_step_that_was_taken_again_with_other_samples() -> None:
    assert consumed({1: [1, 2]}, {1: [1, 3]}).rewritten == [1]


def test_consumed_samples_name_steps_without_a_checkpoint() -> None:
    assert consumed({1: [1], 3: [2]}).gaps() == [2]


def test_consumed_samples_name_what_the_store_never_settled_and_what_nobody_consumed() -> None:
    found = consumed({1: [1, 2], 2: [3]})
    assert found.never_settled(frozenset({1}), newest_before=2) == [2]
    assert found.never_consumed(frozenset({1, 2, 9})) == [9]
