"""One optimizer step moves the policy the way the scores say, and never on numbers that are not finite."""

import math
from pathlib import Path

import pytest
import torch

from openclaw_core.config.policy_training import PolicyTraining
from openclaw_trainer import logprobs, step
from openclaw_trainer.batch import collate
from openclaw_trainer.policy import Policy
from openclaw_trainer.step import Learner
from tests.unit.trainer.sampling import batch_of

CPU = torch.device("cpu")
SIGNALS = [1.0, -1.0, 1.0, -1.0]


def _learner(base: Path, training: PolicyTraining) -> Learner:
    return Learner(Policy.load(base, training), training)


def test_step_raises_what_was_liked_and_lowers_what_was_not(base: Path, training: PolicyTraining) -> None:
    learner = _learner(base, training.model_copy(update={"learning_rate": 1e-3}))
    samples = batch_of(learner.policy.model, 4)
    batch = collate(samples, [0.0] * 4, [0] * 4, CPU)
    result = learner.step(samples, SIGNALS, [0] * 4)
    with torch.no_grad():
        after = logprobs.forward(learner.policy.model, batch).logprobs_B_T
    gains = ((after - batch.rollout_B_T) * batch.mask_B_T).sum(1) / batch.mask_B_T.sum(1)
    assert result.applied and result.grad_norm > 0
    assert [bool(gain > 0) for gain in gains] == [True, False, True, False]


def test_loss_at_the_sampling_policy_is_minus_the_mean_advantage(base: Path, training: PolicyTraining) -> None:
    learner = _learner(base, training)
    result = learner.step(batch_of(learner.policy.model, 3), [1.0, 0.5, -0.5], [0] * 3)
    assert result.loss == pytest.approx(-1.0 / 3, abs=1e-5)


def test_micro_batches_give_the_same_step_as_one_batch(
    base: Path, training: PolicyTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, parts = _learner(base, training), _learner(base, training)
    samples = batch_of(whole.policy.model, 4)
    one = whole.step(samples, SIGNALS, [0] * 4)
    monkeypatch.setattr(step, "MICRO_BATCH_TOKENS", 1)
    four = parts.step(samples, SIGNALS, [0] * 4)
    assert four.loss == pytest.approx(one.loss, abs=1e-6)
    assert four.grad_norm == pytest.approx(one.grad_norm, rel=1e-4)
    for name, tensor in whole.policy.export().items():
        assert torch.allclose(tensor, parts.policy.export()[name], atol=1e-4), name


def test_gradient_of_the_step_matches_finite_differences(base: Path, training: PolicyTraining) -> None:
    still = training.model_copy(update={"learning_rate": 0.0, "off_policy": "rolloutAsOld", "max_grad_norm": 0.0})
    learner = _learner(base, still)
    samples = batch_of(learner.policy.model, 4)
    direction = {name: torch.randn_like(p) for name, p in learner.policy.trainable().items()}
    captured: dict[str, torch.Tensor] = {}
    hooks = [
        p.register_post_accumulate_grad_hook(lambda q, name=name: captured.update({name: q.grad.clone()}))
        for name, p in learner.policy.trainable().items()
    ]
    learner.step(samples, SIGNALS, [0] * 4)
    for hook in hooks:
        hook.remove()
    expected = sum(float((captured[name] * d).sum()) for name, d in direction.items())

    def loss_at(offset: float) -> float:
        with torch.no_grad():
            for name, parameter in learner.policy.trainable().items():
                parameter.add_(offset * direction[name])
        return learner.step(samples, SIGNALS, [0] * 4).loss

    size = 2e-4
    up, down = loss_at(size), loss_at(-2 * size)
    assert (up - down) / (2 * size) == pytest.approx(expected, rel=0.05)


def test_not_finite_batch_leaves_weights_and_optimizer_untouched(base: Path, training: PolicyTraining) -> None:
    learner = _learner(base, training)
    before = {name: tensor.clone() for name, tensor in learner.policy.export().items()}
    result = learner.step(batch_of(learner.policy.model, 4), [math.nan, 1.0, 1.0, 1.0], [0] * 4)
    assert not result.applied
    assert learner.optimizer.state_dict()["state"] == {}
    for name, tensor in learner.policy.export().items():
        assert torch.equal(tensor, before[name])


def test_gradient_is_clipped_to_its_bound_and_reported_unclipped(base: Path, training: PolicyTraining) -> None:
    learner = _learner(base, training.model_copy(update={"max_grad_norm": 1e-3, "learning_rate": 0.0}))
    seen: list[float] = []
    for parameter in learner.policy.trainable().values():
        parameter.register_post_accumulate_grad_hook(lambda p: seen.append(float(p.grad.norm())))
    result = learner.step(batch_of(learner.policy.model, 4), SIGNALS, [0] * 4)
    assert result.grad_norm == pytest.approx(math.sqrt(sum(n * n for n in seen)), rel=1e-3)
    assert result.grad_norm > 1e-3


def test_stale_sample_is_weighted_by_decoupled_but_not_by_none(base: Path, training: PolicyTraining) -> None:
    still = training.model_copy(update={"learning_rate": 0.0})
    policy = Policy.load(base, still)
    drifted = [
        s.model_copy(update={"rollout_logprobs": [p + 1.0 for p in s.rollout_logprobs]})
        for s in batch_of(policy.model, 2)
    ]
    losses = {
        mode: Learner(policy, still.model_copy(update={"off_policy": mode})).step(drifted, [1.0, 1.0], [1, 1]).loss
        for mode in ("decoupled", "mask", "rolloutAsOld", "none")
    }
    assert losses["none"] == pytest.approx(-1.0, abs=1e-4)
    assert losses["decoupled"] == pytest.approx(-math.exp(-1.0), abs=1e-4)
    assert losses["mask"] == 0.0
    assert losses["rolloutAsOld"] == pytest.approx(-math.exp(-1.0), abs=1e-4)


def test_kl_pulls_the_policy_back_to_its_reference(base: Path, training: PolicyTraining) -> None:
    free, held = (_learner(base, training.model_copy(update={"kl_coef": kl})) for kl in (0.0, 10.0))
    samples = batch_of(free.policy.model, 4)
    for learner in (free, held):
        for _ in range(6):
            learner.step(samples, SIGNALS, [0] * 4)
    batch = collate(samples, [0.0] * 4, [0] * 4, CPU)
    with torch.no_grad():
        moved = [
            float(
                (
                    (logprobs.forward(learner.policy.model, batch).logprobs_B_T - batch.rollout_B_T) * batch.mask_B_T
                ).norm()
            )
            for learner in (free, held)
        ]
    assert moved[1] < 0.7 * moved[0]
