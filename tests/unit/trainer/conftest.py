"""A random Llama of 20 k parameters, samples it produced itself, and a trainer loop around it."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from openclaw_core.config.policy_training import Lora, PolicyTraining

VOCABULARY = 48


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of the base model, tied embeddings and grouped heads as in SmolLM2."""
    torch.set_num_threads(1)
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        initializer_range=0.3,
    )
    directory = tmp_path_factory.mktemp("base")
    LlamaForCausalLM(config).save_pretrained(directory)
    (directory / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    return directory


@pytest.fixture
def training() -> PolicyTraining:
    """Settings of the tests: full fine-tuning in float32, small batches, no correction that hides a bug."""
    return PolicyTraining(
        device="cpu",
        dtype="float32",
        learning_rate=1e-2,
        rollout_batch_size=4,
        min_batch=1,
        stale_filter_steps=4,
        checkpoint={"every_steps": 1, "keep": 3},
    )


@pytest.fixture
def lora(training: PolicyTraining) -> PolicyTraining:
    return training.model_copy(update={"lora": Lora(rank=4, alpha=8)})


@pytest.fixture
def worker() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=1, initializer=torch.set_num_threads, initargs=(1,)) as executor:
        yield executor
