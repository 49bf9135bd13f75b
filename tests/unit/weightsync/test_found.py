"""Schedules that once failed, by their seeds; and that a long run leaves none out."""

import pytest

from openclaw_operator.weightsync.swap import SwapMachine
from tests.fakes.sync_system import schedules
from tests.faults.schedules import CHUNK, batches


@pytest.mark.parametrize(
    "seed",
    [
        3514,
        6749,
        8537,
        8548,
        9584,
        17223,
        20553,
        509375,
        513110,
        524033,
        527795,
        594976,
        524610,
        564259,
        575097,
        1367691,
    ],
)
def test_weightsync_converges_under_a_schedule_that_once_failed(seed: int) -> None:
    schedules.run_by_chance(seed)


@pytest.mark.parametrize(
    "seed", [703023, 706107, 709223, 722652, 1154980, 1164285, 1191081, 4014893, 4026665, 4050345, 4097201]
)
def test_rollout_converges_under_a_schedule_that_once_failed(seed: int) -> None:
    schedules.run_by_chance(seed, rollout=schedules.TRIED)


@pytest.mark.parametrize("seed", [808089, 817495, 817746, 823174, 823849, 826928, 929655])
def test_swap_converges_under_a_schedule_that_once_failed(seed: int) -> None:
    schedules.run_by_chance(seed, SwapMachine)


def test_every_schedule_asked_for_is_in_one_batch() -> None:
    planned = [chunk for batch in batches(1000, 5 * CHUNK + 7, 2) for chunk in batch]
    seeds = [seed for first, count in planned for seed in range(first, first + count)]
    assert seeds == list(range(1000, 1000 + 5 * CHUNK + 7))
