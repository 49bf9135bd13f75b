"""Each loss against values worked out by hand, and its gradient against finite differences."""

import math

import pytest
import torch

from openclaw_trainer.advantage import RunningMean, advantages
from openclaw_trainer.losses.binary_rl import binary_rl_advantage
from openclaw_trainer.losses.entropy import entropy_loss
from openclaw_trainer.losses.kl import low_var_kl
from openclaw_trainer.losses.off_policy import old_and_weight
from openclaw_trainer.losses.ppo_clip import ppo_clip
from openclaw_trainer.losses.reduction import sample_means, step_mean


def _logs(*ratios: float) -> torch.Tensor:
    return torch.tensor([[math.log(ratio) for ratio in ratios]])


def _clip(ratio: float, advantage: float) -> float:
    loss = ppo_clip(_logs(ratio), torch.zeros(1, 1), torch.tensor([[advantage]]), low=0.2, high=0.28)
    return float(loss)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss"),
    [
        (1.0, 1.0, -1.0),
        (1.1, 1.0, -1.1),
        (1.5, 1.0, -1.28),  # gains stop at 1 + ε_high
        (0.5, 1.0, -0.5),  # but a good token may always be raised again
        (0.5, -1.0, 0.8),  # and a bad one is pushed down no further than 1 − ε_low
        (1.5, -1.0, 1.5),  # while one that became likelier costs in full
    ],
)
def test_ppo_clip_matches_hand_computed_values(ratio: float, advantage: float, loss: float) -> None:
    assert _clip(ratio, advantage) == pytest.approx(loss, rel=1e-6)


def test_ppo_clip_stays_finite_when_a_probability_collapsed() -> None:
    loss = ppo_clip(torch.tensor([[0.0]]), torch.tensor([[-1000.0]]), torch.tensor([[-1.0]]), low=0.2, high=0.28)
    assert torch.isfinite(loss).all()


def test_ppo_clip_gradient_matches_finite_differences() -> None:
    theta = torch.tensor([[-1.0, -2.0, -0.7]], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([[-1.05, -1.9, -0.8]], dtype=torch.float64)
    advantage = torch.tensor([[1.0, -1.0, 0.5]], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: ppo_clip(x, old, advantage, low=0.2, high=0.28), (theta,))


def test_ppo_clip_passes_no_gradient_beyond_the_bound() -> None:
    theta = _logs(1.5).requires_grad_()
    ppo_clip(theta, torch.zeros(1, 1), torch.ones(1, 1), low=0.2, high=0.28).sum().backward()
    assert theta.grad is not None and float(theta.grad) == 0.0


def test_low_var_kl_matches_its_formula_and_is_zero_for_equal_policies() -> None:
    theta, reference = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.0, -1.0]])
    kl = low_var_kl(theta, reference)
    assert kl.tolist() == [[0.0, pytest.approx(math.e - 1.0 - 1.0, rel=1e-6)]]


def test_low_var_kl_is_bounded() -> None:
    assert float(low_var_kl(torch.tensor([[-50.0]]), torch.tensor([[0.0]]))) == 10.0


def test_low_var_kl_gradient_matches_finite_differences() -> None:
    theta = torch.tensor([[-1.0, -2.0]], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([[-1.3, -1.1]], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: low_var_kl(x, reference), (theta,))


def test_entropy_bonus_lowers_the_loss_of_an_open_policy() -> None:
    assert entropy_loss(torch.tensor([[2.0]]), 0.5).tolist() == [[-1.0]]


@pytest.mark.parametrize(
    ("mode", "old", "weight"),
    [
        ("decoupled", [-1.0, -1.0, -1.0], [1.0, math.exp(-0.5), 2.0]),
        ("mask", [-1.0, -1.0, -1.0], [1.0, 1.0, 0.0]),
        ("rolloutAsOld", [-1.0, -0.5, -3.0], [1.0, 1.0, 1.0]),
        ("none", [-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]),
    ],
)
def test_off_policy_modes_choose_old_policy_and_weight(mode: str, old: list[float], weight: list[float]) -> None:
    prox, rollout = torch.tensor([[-1.0, -1.0, -1.0]]), torch.tensor([[-1.0, -0.5, -3.0]])
    chosen, weights = old_and_weight(mode, prox, rollout)  # type: ignore[arg-type]  # parametrized literal
    assert chosen.tolist() == [old]
    assert weights.tolist() == [pytest.approx(weight, rel=1e-6)]


def test_off_policy_weight_carries_no_gradient() -> None:
    prox = torch.tensor([[-1.0]], requires_grad=True)
    old, weight = old_and_weight("decoupled", prox, torch.tensor([[-1.2]]))
    assert not old.requires_grad and not weight.requires_grad


def test_sample_means_ignore_padding_and_weigh_samples_equally() -> None:
    values = torch.tensor([[1.0, 3.0, math.nan], [5.0, math.inf, math.inf]])
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    assert sample_means(values, mask).tolist() == [2.0, 5.0]
    assert float(step_mean(values, mask, samples_in_step=4)) == 7.0 / 4


def test_sample_without_tokens_contributes_zero() -> None:
    assert sample_means(torch.ones(1, 2), torch.zeros(1, 2)).tolist() == [0.0]


def test_binary_rl_gives_every_token_the_answers_advantage() -> None:
    mask = torch.tensor([[1.0, 1.0], [1.0, 0.0]])
    assert binary_rl_advantage(torch.tensor([1.0, -0.5]), mask).tolist() == [[1.0, 1.0], [-0.5, 0.0]]


def test_running_mean_counts_the_first_batch_in_full_then_fades() -> None:
    baseline = RunningMean()
    for score in (1.0, -1.0, 0.0):
        baseline = baseline.including([score])
    assert baseline.mean == pytest.approx(0.0)
    late = RunningMean(mean=0.0, batches=100).including([1.0])
    assert late.mean == pytest.approx(0.1)


def test_advantage_subtracts_the_running_mean_only_where_asked() -> None:
    plain, after = advantages("none", [1.0, -1.0, -1.0], RunningMean())
    centred, same = advantages("runningMean", [1.0, -1.0, -1.0], RunningMean())
    assert plain == [1.0, -1.0, -1.0]
    assert centred == pytest.approx([4 / 3, -2 / 3, -2 / 3])
    assert after == same
