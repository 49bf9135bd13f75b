"""SGLang's scheduler with a second set of weights, on stand-ins for the classes of SGLang that it reaches into.

That the real ones have this shape is what `tests/contract/test_engine_agent.py` shows.
"""

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from openclaw_engine import scheduler
from openclaw_engine.staging import EXCHANGED, Stager, StagingError


class LlamaForCausalLM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2), requires_grad=False)

    def load_weights(self, weights: Iterator[tuple[str, torch.Tensor]]) -> None:
        for _, tensor in weights:
            self.weight.data.copy_(tensor)


class MixtureForCausalLM(LlamaForCausalLM):
    """Not among the models that are known."""


class UnquantizedLinearMethod:
    """Leaves weights as they were read."""


class Fp8LinearMethod:
    """Converts them."""


class WeightUpdater:
    def __init__(self, runner: "ModelRunner") -> None:
        self.runner, self.model_config = runner, runner.model_config

    def get_model_runner(self) -> "ModelRunner":
        return self.runner

    def get_model(self) -> nn.Module:
        return self.runner.model

    def update_model_fields(self, _: nn.Module, **fields: Any) -> None:
        self.runner.fields = fields

    def update_weights_from_disk(self, model_path: str, load_format: str) -> tuple[bool, str]:
        self.runner.model.weight.data.fill_(float(Path(model_path).name))
        return True, f"Succeeded to read {load_format}."


class ModelRunner:
    device, is_draft_worker = "cpu", False

    def __init__(self, model: LlamaForCausalLM) -> None:
        self.model, self.fields = model, dict[str, Any]()
        self.model_config = SimpleNamespace(model_path="base")
        self.load_config = SimpleNamespace(load_format="auto")
        self.spec_algorithm = SimpleNamespace(is_none=lambda: True)

    def init_weight_updater(self) -> None:
        self.weight_updater = WeightUpdater(self)


class DefaultModelLoader:
    """Reads one tensor, filled with the number that the directory is named after."""

    class Source:
        @staticmethod
        def init_new(config: Any, _: nn.Module) -> str:
            return str(config.model_path)

    def _get_weights_iterator(self, source: str) -> Iterator[tuple[str, torch.Tensor]]:
        yield "weight", torch.full((2,), float(Path(source).name))


@pytest.fixture
def sglang(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """SGLang's modules, as far as they are used, with classes of this test's own."""
    runner = type("ModelRunner", (ModelRunner,), {"init_weight_updater": ModelRunner.init_weight_updater})
    updater = type(
        "WeightUpdater", (WeightUpdater,), {"update_weights_from_disk": WeightUpdater.update_weights_from_disk}
    )
    monkeypatch.setattr(sys.modules[__name__], "WeightUpdater", updater)
    offered: dict[str, dict[str, Any]] = {
        "srt.model_executor.model_runner": {"ModelRunner": runner},
        "srt.model_executor.model_runner_components.weight_updater": {"WeightUpdater": updater},
        "srt.configs.load_config": {"LoadConfig": SimpleNamespace},
        "srt.runtime_context": {"get_parallel": lambda: SimpleNamespace(pp_size=1)},
        "srt.model_loader.loader": {
            "DefaultModelLoader": DefaultModelLoader,
            "get_model_loader": lambda *_: DefaultModelLoader(),
        },
    }
    for name, content in offered.items():
        words = name.split(".")
        for depth in range(len(words) + 1):
            module = ".".join(("sglang", *words[:depth]))
            monkeypatch.setitem(sys.modules, module, sys.modules.get(module) or ModuleType(module))
        vars(sys.modules[f"sglang.{name}"]).update(content)
    return SimpleNamespace(runner=runner)


def started(sglang: SimpleNamespace, directory: Path, model: LlamaForCausalLM) -> ModelRunner:
    scheduler.install(directory)
    runner: ModelRunner = sglang.runner(model)
    runner.init_weight_updater()
    return runner


async def until_listening(directory: Path) -> Stager:
    async with asyncio.timeout(5):
        while not any(name.endswith(".sock") for name in os.listdir(directory)):  # noqa: ASYNC110 - a thread makes it
            await asyncio.sleep(0.01)
    return Stager(directory)


async def test_update_exchanges_what_was_staged_and_reads_what_was_not(sglang: SimpleNamespace, tmp_path: Path) -> None:
    runner = started(sglang, tmp_path, LlamaForCausalLM())
    stager = await until_listening(tmp_path)
    await stager.stage("/weights/5", 5.0)
    assert runner.model.weight.tolist() == [0.0, 0.0]
    assert runner.weight_updater.update_weights_from_disk("/weights/5", "auto") == (True, EXCHANGED)
    assert runner.model.weight.tolist() == [5.0, 5.0]
    assert (runner.fields["model_path"], runner.model_config.model_path) == ("/weights/5", "/weights/5")
    assert runner.weight_updater.update_weights_from_disk("/weights/6", "auto") == (True, "Succeeded to read auto.")
    assert runner.model.weight.tolist() == [6.0, 6.0]


async def test_rank_says_that_it_works_while_it_reads(
    sglang: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "_ALIVE_SEC", 0.02)
    monkeypatch.setattr(LlamaForCausalLM, "load_weights", lambda *_: time.sleep(0.2))
    started(sglang, tmp_path, LlamaForCausalLM())
    await until_listening(tmp_path)
    reader, writer = await asyncio.open_unix_connection(tmp_path / os.listdir(tmp_path)[0])
    writer.write(b"/weights/5\n")
    said = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    assert said.endswith(b"ok\n") and said.count(b"\n") > 3


@pytest.mark.parametrize(
    ("model", "method", "words"),
    [
        (MixtureForCausalLM(), UnquantizedLinearMethod(), "the loader of MixtureForCausalLM may write more"),
        (LlamaForCausalLM(), Fp8LinearMethod(), "weights are converted after reading: Fp8LinearMethod"),
    ],
)
async def test_model_that_does_not_bear_it_says_so_and_is_updated_as_ever(
    sglang: SimpleNamespace, tmp_path: Path, model: LlamaForCausalLM, method: object, words: str
) -> None:
    model.quant_method = method  # type: ignore[assignment]
    runner = started(sglang, tmp_path, model)
    stager = await until_listening(tmp_path)
    with pytest.raises(StagingError, match=words):
        await stager.stage("/weights/5", 5.0)
    assert runner.weight_updater.update_weights_from_disk("/weights/5", "auto") == (True, "Succeeded to read auto.")


async def test_directory_that_cannot_be_read_is_told_of_and_the_next_one_is_staged(
    sglang: SimpleNamespace, tmp_path: Path
) -> None:
    runner = started(sglang, tmp_path, LlamaForCausalLM())
    stager = await until_listening(tmp_path)
    with pytest.raises(StagingError, match="ValueError: could not convert string to float: 'broken'"):
        await stager.stage("/weights/broken", 5.0)
    await stager.stage("/weights/7", 5.0)
    assert runner.weight_updater.update_weights_from_disk("/weights/7", "auto") == (True, EXCHANGED)
