"""What is exported is what was trained, under the names and in the shape engines load."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from openclaw_core.config.policy_training import PolicyTraining
from openclaw_core.wire import Sample
from openclaw_trainer import logprobs
from openclaw_trainer.batch import collate
from openclaw_trainer.policy import Policy
from openclaw_trainer.step import Learner
from tests.unit.trainer.sampling import batch_of

CPU = torch.device("cpu")


def _logprobs(model: object, samples: list[Sample]) -> torch.Tensor:
    batch = collate(samples, [0.0] * len(samples), [0] * len(samples), CPU)
    with torch.no_grad():
        return logprobs.forward(model, batch).logprobs_B_T * batch.mask_B_T


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_exported_weights_reproduce_the_trained_policy(
    base: Path, training: PolicyTraining, lora: PolicyTraining, kind: str
) -> None:
    settings = lora if kind == "lora" else training
    learner = Learner(Policy.load(base, settings), settings)
    samples = batch_of(learner.policy.model, 4)
    learner.step(samples, [1.0, -1.0, 1.0, -1.0], [0] * 4)
    served = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    before = _logprobs(served, samples)
    missing, unexpected = served.load_state_dict(learner.policy.export(), strict=False)
    assert unexpected == [] and set(missing) <= {"lm_head.weight"}
    after = _logprobs(served, samples)
    assert torch.allclose(after, _logprobs(learner.policy.model, samples), atol=1e-5)
    assert (after - before).abs().max() > 1e-3


def test_lora_trains_only_its_adapters_and_exports_every_base_tensor(base: Path, lora: PolicyTraining) -> None:
    policy = Policy.load(base, lora)
    assert policy.trainable() and all(".lora_" in name for name in policy.trainable())
    saved = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).state_dict()
    exported = policy.export()
    assert set(exported) == set(saved) - {"lm_head.weight"}
    for name, tensor in exported.items():
        assert torch.equal(tensor, saved[name]), f"{name} differs before the first step"


def test_bfloat16_policy_exports_bfloat16_and_trains_in_float32(base: Path, training: PolicyTraining) -> None:
    policy = Policy.load(base, training.model_copy(update={"dtype": "bfloat16"}))
    assert {p.dtype for p in policy.trainable().values()} == {torch.float32}
    assert {tensor.dtype for tensor in policy.export().values()} == {torch.bfloat16}


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_reference_stays_where_training_began(
    base: Path, training: PolicyTraining, lora: PolicyTraining, kind: str
) -> None:
    settings = (lora if kind == "lora" else training).model_copy(update={"kl_coef": 0.1})
    learner = Learner(Policy.load(base, settings), settings)
    samples = batch_of(learner.policy.model, 4)
    start = _logprobs(learner.policy.model, samples)
    learner.step(samples, [1.0, -1.0, 1.0, -1.0], [0] * 4)
    with learner.policy.reference() as reference:
        assert torch.allclose(_logprobs(reference, samples), start, atol=1e-6)
    assert not torch.allclose(_logprobs(learner.policy.model, samples), start, atol=1e-3)
