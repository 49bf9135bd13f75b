"""The weight sync as a whole under any interleaving of publishes, crashes, lost messages and edits.

What must hold is checked by the system itself (`tests.fakes.sync_system.system`); `python -m tests.faults.schedules`
runs a hundred thousand schedules more.
"""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from openclaw_operator.weightsync.machine import Machine
from openclaw_operator.weightsync.swap import SwapMachine
from tests.fakes.sync_system import schedules
from tests.fakes.sync_system.faults import COMMON, FAULTS
from tests.fakes.sync_system.schedules import Event, Schedule
from tests.fakes.sync_system.system import System, version

BLOCKS = 10
BLOCK = 100


class AnySystem(RuleBasedStateMachine):
    """Hypothesis chooses what happens next; the shrunk schedule of a failure is printed as its steps."""

    system: System | None = None

    @initialize(seed=st.integers(0, 2**16), engines=st.integers(1, 3), gateways=st.integers(1, 2))
    def begin(self, seed: int, engines: int, gateways: int) -> None:
        self.system = System(seed, engines=engines, gateways=gateways)
        self.system.time.run(10.0)

    @rule(
        name=st.sampled_from(sorted(FAULTS)),
        index=st.integers(0, 7),
        seconds=st.sampled_from(schedules.SECONDS),
        wait=st.sampled_from(schedules.WAITS),
    )
    def happens(self, name: str, index: int, seconds: float, wait: float) -> None:
        assert self.system is not None
        Event(name, index, seconds, wait).happen(self.system)

    def teardown(self) -> None:
        if self.system is not None:
            self.system.settle()


def test_weightsync_converges_and_never_sticks_whatever_happens() -> None:
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    chosen = settings(
        max_examples=40, stateful_step_count=12, deadline=None, derandomize=True, suppress_health_check=slow
    )
    run_state_machine_as_test(AnySystem, settings=chosen)


@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.long) for block in range(1, BLOCKS))])
def test_weightsync_converges_under_a_thousand_schedules(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        schedules.by_chance(seed).run()


def test_version_is_kept_while_an_engine_starts_with_it_for_minutes() -> None:
    """The system asserts it where the start ends."""
    for seed in (*range(60), 5003987):
        schedules.run_by_chance(seed, slowness=schedules.SLOW)


def test_weightsync_without_faults_serves_every_version_in_order() -> None:
    system = Schedule(1, 2, 2, [Event("publish", 0, 0.0, 20.0)] * 5).run()
    served = [content.serving_version for _, content in system.server.history if content and content.serving_version]
    assert (
        list(dict.fromkeys(served)) == [version(number) for number in range(system.published + 1)][: len(set(served))]
    )
    assert {version(number) for number in range(7)} <= set(served)


@pytest.mark.parametrize("name", sorted(COMMON))
def test_weightsync_survives_in_the_middle_of_a_hold(name: str) -> None:
    """One fault of each kind, at moments spread over a whole sync."""
    for seed in range(3):
        moments = [Event("publish", 0, 0.0, 0.3 * seed), Event(name, seed, 3.0, 5.0)]
        Schedule(seed, 2, 1, moments).run()


@pytest.mark.parametrize("machine", [Machine, SwapMachine])
def test_rollout_promotes_what_is_liked_and_never_what_is_disliked_whatever_happens(machine: type[Machine]) -> None:
    """Versions 3, 8, 13 … are disliked; the system asserts that none of them is ever given to every engine."""
    for seed in range(60):
        schedules.run_by_chance(seed, machine, schedules.TRIED)


def test_rollout_without_faults_serves_every_liked_version_in_order_and_skips_the_disliked() -> None:
    system = Schedule(1, 3, 2, [Event("publish", 0, 0.0, 40.0)] * 5).run(rollout=schedules.TRIED)
    contents = [content for _, content in system.server.history if content is not None]
    served = list(dict.fromkeys(content.serving_version for content in contents if content.serving_version))
    assert served[:6] == [version(number) for number in (0, 1, 2, 4, 5, 6)]
    tried = list(dict.fromkeys(content.canary.version for content in contents if content.canary is not None))
    assert tried[:6] == [version(number) for number in range(1, 7)]
    assert {content.hold.pause_version for content in contents if content.hold is not None} == set(served[1:])
