"""A schedule: what is done to a system, and how long it is left alone after each. Made by chance or by Hypothesis."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from openclaw_core.config.policy_serving import Rollout
from openclaw_operator.weightsync.machine import Machine
from tests.fakes.sync_system.faults import COMMON, FAULTS, TAMPERING
from tests.fakes.sync_system.system import System

HEAVY = ("storm", "crash in holds")
"""Minutes each: chosen a third as often."""
LIGHT = tuple(name for name in COMMON if name not in HEAVY)
SECONDS = (0.1, 1.0, 3.0, 10.0, 20.0)
WAITS = (0.01, 0.1, 0.5, 2.0, 5.0)
TAMPERED_SHARE = 0.2
"""Of schedules in which somebody edits the Lease as well."""
SLOW = 40.0
"""Engines start in 40 s to five minutes, in which other versions come and go."""
TRIED = Rollout(canary_replicas=1, min_turns=50, max_duration_sec=60, max_score_drop=0.2)
"""How versions are tried where they are tried at all."""


@dataclass(frozen=True)
class Event:
    """One fault (or publish) on victim `index`, lasting `seconds`; then the world runs for `wait` seconds."""

    name: str
    index: int
    seconds: float
    wait: float

    def happen(self, system: System) -> None:
        FAULTS[self.name](system, self.index, self.seconds)
        system.time.run(system.time.now + self.wait)
        system.check_paused()


@dataclass(frozen=True)
class Schedule:
    seed: int
    engines: int
    gateways: int
    events: Sequence[Event]

    def run(self, machine: type[Machine] = Machine, rollout: Rollout | None = None, slowness: float = 0.0) -> System:
        """Raises AssertionError at the first thing that must not be. `machine`: what operators run."""
        engines, gateways = self.engines, self.gateways
        system = System(
            self.seed, engines=engines, gateways=gateways, machine=machine, rollout=rollout, slowness=slowness
        )
        system.time.run(10.0)
        for event in self.events:
            event.happen(system)
        system.settle()
        return system


def run_by_chance(
    seed: int, machine: type[Machine] = Machine, rollout: Rollout | None = None, slowness: float = 0.0
) -> System:
    """Run the schedule of this seed; with a rollout on three engines, so that a canary always has peers."""
    schedule = by_chance(seed)
    return (replace(schedule, engines=3) if rollout is not None else schedule).run(machine, rollout, slowness)


def by_chance(seed: int) -> Schedule:
    """The schedule of this seed."""
    source = random.Random(seed)
    names = [*LIGHT * 3, *HEAVY, *["publish"] * 12, *([*TAMPERING] * 3 if source.random() < TAMPERED_SHARE else [])]
    events = [
        Event(source.choice(names), source.randrange(8), source.choice(SECONDS), source.choice(WAITS))
        for _ in range(source.randrange(3, 14))
    ]
    return Schedule(seed, source.randrange(1, 4), source.randrange(1, 3), events)
