"""Batching must not change a logprob, and a wrong convention must show in the drift metric."""

from pathlib import Path

import pytest
import torch

from openclaw_core.config.policy_training import PolicyTraining
from openclaw_core.wire import Sampling
from openclaw_trainer import logprobs
from openclaw_trainer.batch import collate, split
from openclaw_trainer.policy import Policy
from openclaw_trainer.step import Learner
from tests.unit.trainer.sampling import batch_of, sample

CPU = torch.device("cpu")


@pytest.mark.parametrize("temperature", [1.0, 0.7, 0.0])
def test_padded_batch_reproduces_the_engines_logprobs(base: Path, training: PolicyTraining, temperature: float) -> None:
    policy = Policy.load(base, training)
    samples = batch_of(policy.model, 6, temperature=temperature)
    batch = collate(samples, [0.0] * 6, [0] * 6, CPU)
    with torch.no_grad():
        scored = logprobs.forward(policy.model, batch)
    assert ((scored.logprobs_B_T - batch.rollout_B_T) * batch.mask_B_T).abs().max() < 1e-5
    assert torch.isfinite(scored.logprobs_B_T).all()


def test_temperature_mismatch_shows_in_the_drift_metric(base: Path, training: PolicyTraining) -> None:
    learner = Learner(Policy.load(base, training), training)
    honest = batch_of(learner.policy.model, 4, temperature=0.7)
    wrong = [s.model_copy(update={"sampling": Sampling(temperature=1.0)}) for s in honest]
    still = training.model_copy(update={"learning_rate": 0.0})
    first, second = (Learner(learner.policy, still).step(s, [1.0] * 4, [0] * 4) for s in (honest, wrong))
    assert first.logprob_abs_diff < 1e-5
    assert second.logprob_abs_diff > 0.05


def test_drift_is_reported_per_lag_and_for_fresh_samples(base: Path, training: PolicyTraining) -> None:
    still = training.model_copy(update={"learning_rate": 0.0})
    learner = Learner(Policy.load(base, still), still)
    samples = batch_of(learner.policy.model, 4)
    drifted = samples[3].model_copy(update={"rollout_logprobs": [p - 0.5 for p in samples[3].rollout_logprobs]})
    result = learner.step([*samples[:3], drifted], [1.0] * 4, [0, 0, 0, 2])
    assert result.logprob_abs_diff_fresh == pytest.approx(0.0, abs=1e-5)
    assert result.abs_diff_by_lag[2] == pytest.approx(0.5, abs=1e-4)
    assert result.logprob_abs_diff == pytest.approx(0.125, abs=1e-4)
    assert learner.step([drifted], [1.0], [2]).logprob_abs_diff_fresh is None


def test_entropy_of_a_uniform_distribution_is_log_of_the_vocabulary(base: Path, training: PolicyTraining) -> None:
    policy = Policy.load(base, training)
    with torch.no_grad():
        policy.model.get_input_embeddings().weight.zero_()  # type: ignore[operator]
    batch = collate([sample(policy.model, 1)], [0.0], [0], CPU)
    entropy = logprobs.forward(policy.model, batch, entropy=True).entropy_B_T
    assert entropy is not None
    assert torch.allclose(entropy, torch.log(torch.tensor(48.0)).expand_as(entropy), atol=1e-5)


def test_collate_refuses_logprobs_of_another_length(base: Path, training: PolicyTraining) -> None:
    broken = sample(Policy.load(base, training).model, 3).model_copy(update={"rollout_logprobs": [0.0]})
    with pytest.raises(ValueError, match="sample 3"):
        collate([broken], [1.0], [0], CPU)


def test_split_keeps_every_sample_once_within_the_budget(base: Path, training: PolicyTraining) -> None:
    samples = batch_of(Policy.load(base, training).model, 9)
    groups = split(samples, 30)
    assert sorted(i for group in groups for i in group) == list(range(9))
    assert len(groups) > 2
    for group in groups:
        rows = [samples[i] for i in group]
        padded = len(rows) * (max(len(s.prompt_ids) for s in rows) + max(len(s.output_ids) for s in rows))
        assert padded <= 30 or len(group) == 1
