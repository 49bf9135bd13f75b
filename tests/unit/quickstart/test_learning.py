"""The demo's middle in virtual time: scripted users, policy and trainer; what is examined when, and what is found."""

import asyncio
from collections.abc import Iterator

import pytest

from examples.quickstart.console import Clock
from examples.quickstart.evaluation import Evaluation
from examples.quickstart.learning import Learning
from examples.quickstart.observation import Observation
from examples.quickstart.pacing import Pace
from openclaw_core import wire
from openclaw_environment.journal import Journal

pytestmark = [pytest.mark.looptime]


def update(step: int, liked: float) -> wire.Update:
    return wire.Update(
        step=step,
        version=f"{step}-0000000a",
        samples=16,
        reward_mean=2 * liked - 1,
        loss=0,
        lag_mean=0,
        lag_max=0,
        logprob_abs_diff=0,
        logprob_abs_diff_fresh=None,
        grad_norm=0,
        seconds=1,
        finished_at=0,
    )


class World:
    """An update every 10 s while users talk; the policy's true rate follows the script."""

    def __init__(self, rates: list[float], held_out: list[float]) -> None:
        self.seen = Observation()
        self.rates, self.held_out_rates = iter(rates), held_out
        self.talking, self.words, self.updates = True, list[str](), list[wire.Update]()
        self.seen.trainer = wire.TrainerState(phase="waiting", step=0, version="0-00000000", trainer_epoch=1)

    async def live(self) -> None:
        while True:
            await asyncio.sleep(10)
            if not self.talking or (rate := next(self.rates, None)) is None:
                continue
            self.updates.append(update(len(self.updates) + 1, rate))
            version = self.updates[-1].version
            self.seen.serving = version
            self.seen.trainer = wire.TrainerState(
                phase="waiting", step=len(self.updates), version=version, trainer_epoch=1, updates=list(self.updates)
            )
            self.seen.engines.server_info("engine", "0.5.23")
            self.seen.engines.weights("engine", version, f"sum-{version}")

    async def stop(self) -> wire.ClientReport:
        self.words.append("stop")
        self.talking = False
        return wire.ClientReport(stopped=True, turns_ok=20, in_flight=0)

    async def start(self) -> wire.ClientReport:
        self.words.append("start")
        self.talking = True
        return wire.ClientReport()

    async def held_out(self) -> Evaluation:
        self.words.append(f"examine@{len(self.updates)}")
        return Evaluation((("q", "a"),), self.held_out_rates.pop(0))

    async def quality(self) -> float:
        return 0.5


@pytest.fixture
def run() -> Iterator[object]:
    tasks: list[asyncio.Task[None]] = []

    async def start(world: World, minutes: float = 20) -> Learning:
        tasks.append(asyncio.create_task(world.live()))
        learning = Learning(Clock(), Pace(minutes), world.seen, world, Journal())
        await learning.examine_before()
        await learning.learn(world)
        world.seen.stats = wire.Stats(served=20, recorded=20, trained=16, queued=4)
        await learning.settle_accounts()
        tasks[0].cancel()
        return learning

    yield start


async def test_learning_ends_when_an_examination_with_quiet_users_reaches_the_rate(run) -> None:  # type: ignore[no-untyped-def]
    world = World([0.3, 0.5, 0.9, 0.9, 0.9], held_out=[0.25, 0.85])
    learning = await run(world)
    assert world.words == ["examine@0", "stop", "examine@4"]
    outcome = learning.outcome(99.0)
    assert outcome.shortfalls() == []
    assert (outcome.rate_before, outcome.rate_after, outcome.versions, outcome.lost) == (0.25, 0.85, 4, 0)


async def test_reward_that_does_not_generalise_keeps_users_going(run) -> None:  # type: ignore[no-untyped-def]
    world = World([0.9] * 12, held_out=[0.25, 0.5, 0.7, 0.9])
    learning = await run(world)
    assert world.words == [
        "examine@0",
        *["stop", "examine@3", "start", "stop", "examine@6", "start"],
        "stop",
        "examine@9",
    ]
    assert learning.outcome(1.0).learned()
    assert learning.findings.looks == [(0, 0.25), (3, 0.5), (6, 0.7), (9, 0.9)]


async def test_time_over_ends_it_with_an_examination_and_the_truth(run) -> None:  # type: ignore[no-untyped-def]
    world = World([0.3] * 100, held_out=[0.25, 0.3])
    learning = await run(world, minutes=1)
    assert world.words in (["examine@0", "stop", "examine@5"], ["examine@0", "stop", "examine@6"])
    assert not learning.outcome(1.0).learned()


async def test_outcome_without_an_examination_says_so() -> None:
    learning = Learning(Clock(), Pace(1), Observation(), World([], []), Journal())
    assert "the held-out questions were not asked before and after" in learning.outcome(1.0).shortfalls()
