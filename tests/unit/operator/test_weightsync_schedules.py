"""The weight sync under every kind of fault at any time: it never sticks, never goes back, and always converges."""

from dataclasses import dataclass

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openclaw_core.versions import WeightVersion
from tests.unit.operator.sync_world import PAUSE_TIMEOUT, World, version

FAULTS_END = 60.0
QUIET_SEC = 300.0
STEP_SEC = 20.0


@dataclass(frozen=True)
class Fault:
    at: float
    kind: str
    index: int
    seconds: float


faults = st.builds(
    Fault,
    at=st.floats(0.0, FAULTS_END),
    kind=st.sampled_from(
        ["kill operator", "kill engine", "api down", "lose answers", "break engine", "hang engine", "bad version"]
    ),
    index=st.integers(0, 3),
    seconds=st.floats(0.1, 30.0),
)


def inject(world: World, fault: Fault) -> None:
    living = list(world.agents.values())
    chosen = living[fault.index % len(living)] if living else None
    match fault.kind:
        case "kill operator":
            world.kill_operator(fault.seconds)
        case "kill engine":
            world.kill_engine(fault.index)
        case "api down":
            world.api_down_until = world.now + fault.seconds
        case "lose answers":
            world.losing_until = world.now + fault.seconds
        case "break engine" if chosen:
            chosen.broken = True
            world.at(fault.seconds, lambda: setattr(chosen, "broken", False))
        case "hang engine" if chosen:
            chosen.hangs, chosen.unready = True, fault.index % 2 == 0
            world.at(fault.seconds, lambda: (setattr(chosen, "hangs", False), setattr(chosen, "unready", False)))
        case "bad version":
            world.bad_numbers.add(fault.index + 2)


def finish(world: World, publishes: list[float]) -> int:
    for index, moment in enumerate(sorted(publishes)):
        world.at(moment, lambda number=index + 1: world.publish(number))
    world.run(FAULTS_END + 30.0)
    last = len(publishes) + 1
    world.bad_numbers.discard(last)
    world.publish(last)
    deadline = world.now + QUIET_SEC
    while world.now < deadline and not converged(world, last):
        world.run(world.now + STEP_SEC)
    world.run(world.now + STEP_SEC)
    return last


def converged(world: World, last: int) -> bool:
    at_last = all(agent.version == version(last) for agent in world.agents.values())
    return at_last and world.lease.hold is None and world.lease.serving_version == version(last)


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**32),
    engines=st.integers(1, 4),
    gateways=st.integers(0, 3),
    publishes=st.lists(st.floats(0.0, FAULTS_END), max_size=8),
    schedule=st.lists(faults, max_size=10),
)
def test_weightsync_under_any_schedule_ends_unpaused_at_the_newest_version(
    seed: int, engines: int, gateways: int, publishes: list[float], schedule: list[Fault]
) -> None:
    world = World(seed, engines, gateways)
    for fault in schedule:
        world.at(fault.at, lambda fault=fault: inject(world, fault))
    last = finish(world, publishes)

    assert world.lease.hold is None
    assert world.lease.serving_version == version(last)
    assert {agent.version for agent in world.agents.values()} == {version(last)}
    assert not any(agent.paused for agent in world.agents.values())
    assert world.target[-1][1] == version(last)
    for gateway in world.gateways:
        assert gateway.paused_until <= world.now
        for first_sight, end in gateway.refusals.values():
            assert end - first_sight <= PAUSE_TIMEOUT + 1e-6


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32), engines=st.integers(1, 4), publishes=st.integers(1, 6))
def test_weightsync_without_faults_serves_every_version_in_order(seed: int, engines: int, publishes: int) -> None:
    world = World(seed, engines, gateways=2)
    world.run(30.0)
    for number in range(1, publishes + 1):
        world.publish(number)
        world.run(world.now + 20.0)
    served = [state.serving_version for _, state in world.history if state.serving_version is not None]
    order = [WeightVersion.parse(text).number for text in served]
    assert order == sorted(order)
    assert set(order) == set(range(publishes + 1))
    assert world.lease.epoch == publishes


@settings(max_examples=12, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32), kills=st.lists(st.floats(0.0, 400.0), max_size=8))
def test_weightsync_releases_old_versions_but_none_that_an_engine_may_still_load(seed: int, kills: list[float]) -> None:
    """The world's own check fails the moment an engine is sent to a version the trainer may have deleted."""
    world = World(seed, engines=3, gateways=1)
    for number in range(1, 41):
        world.at(number * 10.0, lambda number=number: world.publish(number))
    for index, moment in enumerate(kills):
        world.at(moment, lambda index=index: world.kill_engine(index))
    world.run(440.0)
    assert world.lease.releasable, "old versions pile up on the volume"
    assert max(world.lease.releasable) <= 38
    assert min(world.lease.releasable) == 1
