"""Two processes with gloo train exactly what one process trains."""

import multiprocessing
import os
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from openclaw_core.config.policy_training import PolicyTraining
from openclaw_core.wire import Sample
from openclaw_trainer import step
from openclaw_trainer.policy import Policy
from openclaw_trainer.snapshot import Snapshot
from openclaw_trainer.step import Learner, StepResult
from openclaw_trainer.team import Team, follow
from openclaw_trainer.world import World
from tests.unit.trainer.sampling import batch_of

SIGNALS = [1.0, -1.0, 1.0, -1.0, 0.5]
LAGS = [0, 0, 1, 1, 0]
Ran = tuple[list[StepResult], dict[str, torch.Tensor], Snapshot]


def _train(team: Team, batches: list[list[Sample]], saved: Snapshot | None) -> Ran:
    if saved is not None:
        team.restore(saved)
    results = [team.step(batch, SIGNALS, LAGS) for batch in batches]
    team.idle()
    return results, team.export(), team.snapshot()


def _rank(rank: int, port: int, base: Path, training: PolicyTraining, work: tuple[Any, ...], out: Path) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    world = World.join("cpu")
    learner = Learner(Policy.load(base, training, world), training, world)
    if rank == 0:
        torch.save(_train(Team(learner, world), *work), out)
        world.from_lead(("end", ()))
    else:
        learner.end = _end  # type: ignore[attr-defined]  # only this test's followers ever end
        with pytest.raises(_EndError):
            follow(learner, world)
    dist.destroy_process_group()


class _EndError(Exception):
    pass


def _end() -> None:
    raise _EndError


def _two_processes(base: Path, training: PolicyTraining, *work: Any) -> Ran:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    fork = multiprocessing.get_context("fork")  # the imports of torch and transformers come along
    out = base.parent / f"ran-{port}.pt"
    ranks = [fork.Process(target=_rank, args=(rank, port, base, training, work, out)) for rank in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(60)
    assert [process.exitcode for process in ranks] == [0, 0]
    ran: Ran = torch.load(out, weights_only=False)
    return ran


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_two_processes_equal_one_on_loss_gradient_and_weights(
    base: Path, training: PolicyTraining, lora: PolicyTraining, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = (lora if kind == "lora" else training).model_copy(update={"learning_rate": 1e-3})
    single = Learner(Policy.load(base, settings), settings)
    samples = batch_of(single.policy.model, 10)
    batches = [samples[:5], samples[5:]]
    monkeypatch.setattr(step, "MICRO_BATCH_TOKENS", 20)  # several micro batches, not equally many on both ranks
    one, weights, taken = _train(Team(single, World()), batches, None)
    two, sharded_weights, sharded_taken = _two_processes(base, settings, batches, None)
    for alone, together in zip(one, two, strict=True):
        assert together.loss == pytest.approx(alone.loss, abs=1e-5)
        assert together.grad_norm == pytest.approx(alone.grad_norm, rel=1e-3)
        assert together.abs_diff_by_lag == pytest.approx(alone.abs_diff_by_lag, abs=1e-5)
    assert set(weights) == set(sharded_weights)
    for name, tensor in weights.items():
        assert torch.allclose(sharded_weights[name], tensor, atol=2e-4), name
    assert {n: t.shape for n, t in taken["parameters"].items()} == {
        n: t.shape for n, t in sharded_taken["parameters"].items()
    }


def test_checkpoint_of_one_process_resumes_on_two(base: Path, training: PolicyTraining) -> None:
    settings = training.model_copy(update={"learning_rate": 1e-3})
    single = Learner(Policy.load(base, settings), settings)
    samples = batch_of(single.policy.model, 10)
    _, _, taken = _train(Team(single, World()), [samples[:5]], None)
    straight, weights, _ = _train(Team(single, World()), [samples[5:]], None)
    resumed, sharded_weights, _ = _two_processes(base, settings, [samples[5:]], taken)
    assert resumed[0].loss == pytest.approx(straight[0].loss, abs=1e-5)
    for name, tensor in weights.items():
        assert torch.allclose(sharded_weights[name], tensor, atol=2e-4), name


def test_every_rank_runs_as_many_micro_batches_and_every_sample_once(
    base: Path, training: PolicyTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "MICRO_BATCH_TOKENS", 20)
    samples = batch_of(Policy.load(base, training).model, 7)
    for size in (1, 2, 3, 8):
        plans = [step.rank_share(samples, World(rank, size)) for rank in range(size)]
        assert len({len(plan) for plan in plans}) == 1
        assert sorted(i for plan in plans for group in plan for i in group) == list(range(7))
