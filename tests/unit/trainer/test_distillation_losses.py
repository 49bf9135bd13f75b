"""Distillation losses against values worked out by hand."""

import math

import pytest
import torch

from openclaw_trainer.losses.combine import combined_advantage
from openclaw_trainer.losses.opd import opd_advantage
from openclaw_trainer.losses.topk_distill import topk_distill_loss

MASK = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
TEACHER = torch.tensor([[-0.5, -2.0, float("nan")], [-1.0, 7.0, 7.0]])
OLD = torch.tensor([[-1.5, -1.0, 0.0], [-1.25, 0.0, 0.0]])


def test_opd_advantage_is_the_teachers_gain_on_answer_tokens() -> None:
    found = opd_advantage(TEACHER, OLD, MASK)
    assert torch.equal(found, torch.tensor([[1.0, -1.0, 0.0], [0.25, 0.0, 0.0]]))


def test_opd_advantage_carries_no_gradient() -> None:
    theta = torch.zeros(1, 2, requires_grad=True)
    assert not opd_advantage(theta - 1.0, theta, torch.ones(1, 2)).requires_grad


def test_combined_advantage_adds_the_verdict_to_the_hint_where_there_is_one() -> None:
    found = combined_advantage(torch.tensor([-1.0, 1.0]), TEACHER, OLD, torch.tensor([1.0, 0.0]), MASK)
    assert torch.equal(found, torch.tensor([[0.0, -2.0, 0.0], [1.0, 0.0, 0.0]]))


def test_combined_advantage_weighs_its_two_parts() -> None:
    found = combined_advantage(
        torch.tensor([1.0, 1.0]), TEACHER, OLD, torch.ones(2), MASK, weight_rl=0.5, weight_opd=2.0
    )
    assert torch.equal(found, torch.tensor([[2.5, -1.5, 0.0], [1.0, 0.0, 0.0]]))


def test_teacher_of_a_sample_without_a_hint_may_be_anything() -> None:
    nothing = torch.full((1, 2), float("nan"))
    found = combined_advantage(torch.tensor([1.0]), nothing, torch.zeros(1, 2), torch.zeros(1), torch.ones(1, 2))
    assert torch.equal(found, torch.ones(1, 2))


def test_topk_loss_is_the_reverse_kl_over_the_listed_tokens_and_the_rest() -> None:
    """π_θ = (.5, .25 | .25), π_T = (.25, .25 | .5): .5·ln 2 + 0 + .25·ln ½ = .25·ln 2."""
    student = torch.tensor([[[0.5, 0.25]]]).log()
    teacher = torch.tensor([[[0.25, 0.25]]]).log()
    assert topk_distill_loss(student, teacher).item() == pytest.approx(0.25 * math.log(2), rel=1e-6)


def test_topk_loss_is_zero_for_equal_policies_and_falls_towards_the_teacher() -> None:
    teacher = torch.log_softmax(torch.tensor([[[2.0, 1.0, 0.0, -1.0]]]), -1)[..., :2]
    assert topk_distill_loss(teacher, teacher).abs().item() < 1e-7
    logits = torch.zeros(1, 1, 4, requires_grad=True)
    before = topk_distill_loss(torch.log_softmax(logits, -1)[..., :2], teacher)
    (gradient,) = torch.autograd.grad(before.sum(), logits)
    after = topk_distill_loss(torch.log_softmax(logits - 0.5 * gradient, -1)[..., :2], teacher)
    assert 0 < after.item() < before.item()


def test_topk_loss_stays_finite_where_the_listed_tokens_are_everything() -> None:
    everything = torch.log_softmax(torch.tensor([[[30.0, 0.0]]]), -1)
    theta = everything.clone().requires_grad_()
    loss = topk_distill_loss(theta, everything)
    loss.sum().backward()  # type: ignore[no-untyped-call]  # torch declares no types here
    assert torch.isfinite(loss).all() and theta.grad is not None and torch.isfinite(theta.grad).all()
