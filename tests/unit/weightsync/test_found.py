"""Schedules that once failed, by their seeds."""

import pytest

from tests.fakes.sync_system import schedules


@pytest.mark.parametrize("seed", [3514, 6749, 8537, 8548, 9584, 17223, 20553])
def test_weightsync_converges_under_a_schedule_that_once_failed(seed: int) -> None:
    schedules.by_chance(seed).run()
