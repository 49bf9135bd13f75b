"""A model's second set of weights, on a model of torch's own modules shaped like SGLang's."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from openclaw_engine.double_buffer import DoubleBuffer, spare_of


class Layer(nn.Module):
    """A fused projection whose parameter carries its own loader, as SGLang's do."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4, 2), requires_grad=False)
        self.weight.weight_loader = self.load  # type: ignore[attr-defined]
        self.group = threading.Lock()
        """Stands for a process group: it can be neither copied nor pickled."""

    def load(self, parameter: nn.Parameter, value: torch.Tensor, shard: int) -> None:
        parameter.data[2 * shard : 2 * shard + 2].copy_(value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight.T


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.head = self.layers[0]
        self.untouched = nn.Parameter(torch.ones(1), requires_grad=False)
        self.known = {"first": self.layers[0].weight}
        """A model that remembers its parameters must not lead the spare's loader to those that serve."""
        self.register_buffer("cosines", torch.arange(3.0))

    def load_weights(self, value: float) -> None:
        for layer in self.layers:
            assert isinstance(layer, Layer)
            for shard in (0, 1):
                layer.weight.weight_loader(layer.weight, torch.full((2, 2), value + shard), shard)  # type: ignore[attr-defined]
        self.known["first"].data[0, 0] = value

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers[0](x) + self.layers[1](x)


def buffered() -> tuple[Model, DoubleBuffer]:
    model = Model()
    model.load_weights(1.0)
    return model, DoubleBuffer(lambda: model, lambda spare, directory: spare.load_weights(float(directory)))


def first(model: nn.Module) -> list[float]:
    return [float(parameter.flatten()[0]) for parameter in model.parameters()]


def test_version_read_ahead_is_served_only_after_the_exchange() -> None:
    model, buffer = buffered()
    x = torch.ones(1, 2)
    before = model(x).clone()
    buffer.stage("5")
    assert torch.equal(model(x), before), "the model serves on what it had"
    assert buffer.exchange("5")
    assert first(model) == [1.0, 5.0, 5.0]
    assert model(x).tolist() == [[20.0, 20.0, 24.0, 24.0]]


def test_nothing_is_exchanged_but_what_was_asked_for_and_only_once() -> None:
    model, buffer = buffered()
    assert not buffer.exchange("5")
    buffer.stage("5")
    assert not buffer.exchange("6")
    assert buffer.exchange("5")
    assert not buffer.exchange("5"), "the spare holds the older version now"
    assert first(model) == [1.0, 5.0, 5.0]


def test_versions_follow_one_another_through_the_same_two_sets() -> None:
    model, buffer = buffered()
    places = {parameter.data_ptr() for parameter in model.parameters()}
    for version in (2.0, 3.0, 4.0):
        buffer.stage(str(version))
        assert buffer.exchange(str(version))
        assert first(model) == [1.0, version, version]
        places |= {parameter.data_ptr() for parameter in model.parameters()}
    assert len(places) == 2 * len(list(model.parameters()))


def test_version_that_cannot_be_read_stages_nothing_and_leaves_the_model_alone() -> None:
    model, buffer = buffered()
    buffer.stage("2")
    with pytest.raises(ValueError, match="broken"):
        buffer.stage("broken")
    assert not buffer.exchange("2"), "the spare holds parts of two versions"
    assert not buffer.exchange("broken")
    assert first(model) == [1.0, 1.0, 1.0]


def test_directory_that_was_written_anew_is_another_version(tmp_path: Path) -> None:
    model = Model()
    buffer = DoubleBuffer(lambda: model, lambda spare, directory: spare.load_weights(float(file.read_text())))
    file = tmp_path / "weights"
    file.write_text("2")
    buffer.stage(str(tmp_path))
    file.write_text("33")
    assert not buffer.exchange(str(tmp_path))
    buffer.stage(str(tmp_path))
    assert buffer.exchange(str(tmp_path))
    assert first(model) == [1.0, 33.0, 33.0]


def test_exchange_does_not_wait_for_a_version_that_is_still_read() -> None:
    model = Model()
    reads, go_on = threading.Event(), threading.Event()

    def read(_: nn.Module, __: str) -> None:
        reads.set()
        assert go_on.wait(10)

    buffer = DoubleBuffer(lambda: model, read)
    stages = threading.Thread(target=buffer.stage, args=("5",))
    stages.start()
    assert reads.wait(10)
    assert not buffer.exchange("5")
    go_on.set()
    stages.join(10)
    assert buffer.exchange("5")


@pytest.mark.parametrize("of", [lambda model: model.head.weight, lambda model: model.known["first"]])
def test_spare_refers_to_nothing_that_serves(of: Callable[[Model], nn.Parameter]) -> None:
    model = Model()
    spare = spare_of(model)
    assert isinstance(spare, Model)
    assert of(spare) is spare.layers[0].weight
    assert of(spare).data_ptr() != of(model).data_ptr()
    assert of(spare).weight_loader == model.layers[0].load  # type: ignore[attr-defined]
    assert not {id(own) for own in spare.parameters()} & {id(own) for own in model.parameters()}
    assert spare.cosines is model.cosines, "what no version changes is shared"
