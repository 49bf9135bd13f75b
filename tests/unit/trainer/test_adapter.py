"""An adapter version is what PEFT, and so SGLang, loads: the trained policy again, on top of the untouched base."""

import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from openclaw_core.config.policy_training import Lora, PolicyTraining
from openclaw_core.wire import Sample
from openclaw_trainer import logprobs
from openclaw_trainer.batch import collate
from openclaw_trainer.policy import Policy
from openclaw_trainer.step import Learner
from openclaw_trainer.volume import Volume
from tests.unit.trainer.sampling import batch_of

CPU = torch.device("cpu")


@pytest.fixture
def adapter(training: PolicyTraining) -> PolicyTraining:
    return training.model_copy(update={"lora": Lora(rank=4, alpha=12, publish="adapter")})


def _logprobs(model: object, samples: list[Sample]) -> torch.Tensor:
    batch = collate(samples, [0.0] * len(samples), [0] * len(samples), CPU)
    with torch.no_grad():
        return logprobs.forward(model, batch).logprobs_B_T * batch.mask_B_T


def test_published_adapter_reproduces_the_trained_policy_on_the_base(
    tmp_path: Path, base: Path, adapter: PolicyTraining
) -> None:
    learner = Learner(Policy.load(base, adapter), adapter)
    samples = batch_of(learner.policy.model, 4)
    start = _logprobs(learner.policy.model, samples)
    learner.step(samples, [1.0, -1.0, 1.0, -1.0], [0] * 4)
    trained = _logprobs(learner.policy.model, samples)
    manifest = Volume(tmp_path).publish(
        1, epoch=1, step=1, weights=learner.export(), base=base, lora=learner.training.adapter
    )
    served = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), tmp_path / "v1")
    assert manifest.is_adapter
    assert torch.allclose(_logprobs(served, samples), trained, atol=1e-6)
    assert (trained - start).abs().max() > 1e-3


def test_adapter_version_holds_no_weight_of_the_base(tmp_path: Path, base: Path, adapter: PolicyTraining) -> None:
    policy = Policy.load(base, adapter)
    manifest = Volume(tmp_path).publish(1, epoch=1, step=1, weights=policy.export(), base=base, lora=adapter.adapter)
    assert {file.name for file in manifest.files} == {"adapter_config.json", "adapter_model.safetensors"}
    weights = load_file(tmp_path / "v1" / "adapter_model.safetensors")
    assert len(weights) == 2 * 7 * 2  # A and B of seven linear maps in two layers
    assert weights["base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight"].shape == (16, 4)
    config = json.loads((tmp_path / "v1" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"]) == (4, 12)
    assert config["target_modules"] == ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]


def test_adapter_is_written_in_the_served_dtype(base: Path, adapter: PolicyTraining) -> None:
    policy = Policy.load(base, adapter.model_copy(update={"dtype": "bfloat16"}))
    assert {tensor.dtype for tensor in policy.export().values()} == {torch.bfloat16}


def test_version_with_whole_weights_is_no_adapter(tmp_path: Path, base: Path, lora: PolicyTraining) -> None:
    policy = Policy.load(base, lora)
    manifest = Volume(tmp_path).publish(1, epoch=1, step=1, weights=policy.export(), base=base, lora=lora.adapter)
    assert not manifest.is_adapter
