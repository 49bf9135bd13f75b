"""A second set of a model's weights: the next version is read into it while the first serves, then they change places.

    stage(directory) ─▶ spare model reads the files, in host memory        (seconds; the model goes on serving)
    exchange(directory) ─▶ the two sets change places, or on a GPU the spare is copied over        (the pause)

The spare is the model again, module by module, with parameters of its own; everything else is shared, so that its
`load_weights` finds the same sizes, ranks and names.
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Files = tuple[str, tuple[tuple[str, int, int, int], ...]]
"""A directory and its files: name, inode, size, time of the last change in nanoseconds."""


class DoubleBuffer:
    """`read(spare, directory)` loads a version's files into a model. Calls may come from two threads."""

    def __init__(self, model: Callable[[], nn.Module], read: Callable[[nn.Module, str], None]) -> None:
        self._model, self._read = model, read
        self._lock = threading.Lock()
        self._spare: nn.Module | None = None
        self._staged: Files | None = None

    def stage(self, directory: str) -> None:
        """Read the version in `directory` into the spare. Raises whatever `read` does; then nothing is staged."""
        with self._lock:
            found = files(directory)
            if self._staged == found:
                return
            self._staged = None
            self._spare = self._spare if self._spare is not None else spare_of(self._model())
            with torch.no_grad():
                self._read(self._spare, directory)
            self._staged = found

    def exchange(self, directory: str) -> bool:
        """Have the model serve what was staged from `directory`. False: nothing was, or is not whole yet."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._spare is None or self._staged != files(directory):
                return False
            self._staged = None
            change_places(self._model(), self._spare)
            return True
        finally:
            self._lock.release()


def files(directory: str) -> Files:
    """What lies in `directory` now: files that were written anew are another version, whatever the name."""
    if not os.path.isdir(directory):
        return directory, ()
    found = ((entry.name, entry.stat()) for entry in os.scandir(directory))
    return directory, tuple(sorted((name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in found))


def spare_of(model: nn.Module) -> nn.Module:
    """The model again with parameters of its own, in host memory, page-locked where it serves from a GPU."""
    own: dict[int, Any] = {id(parameter): _host_copy(parameter) for parameter in model.parameters()}
    for module in model.modules():
        own[id(module)] = type(module).__new__(type(module))
    for module in model.modules():
        vars(own[id(module)]).update({name: _replaced(value, own) for name, value in vars(module).items()})
    spare = own[id(model)]
    assert isinstance(spare, nn.Module)
    return spare


def _replaced(value: Any, own: dict[int, Any]) -> Any:
    """`value` with parameters and modules of the model replaced by the spare's, also within containers."""
    if id(value) in own:
        return own[id(value)]
    if type(value) in (dict, OrderedDict):
        return type(value)((key, _replaced(item, own)) for key, item in value.items())
    if type(value) in (list, tuple, set):
        return type(value)(_replaced(item, own) for item in value)
    return value


def _host_copy(parameter: nn.Parameter) -> nn.Parameter:
    data = parameter.detach().to("cpu", copy=True)
    data = data.pin_memory() if parameter.is_cuda else data
    copied = torch.Tensor._make_subclass(type(parameter), data, parameter.requires_grad)
    vars(copied).update(vars(parameter))
    assert isinstance(copied, nn.Parameter)
    return copied


def change_places(model: nn.Module, spare: nn.Module) -> None:
    """On the CPU no byte is copied. On a GPU captured graphs know the addresses, so the spare is copied over."""
    pairs = list(zip(model.parameters(), spare.parameters(), strict=True))
    for serving, read in pairs:
        if serving.is_cuda:
            serving.data.copy_(read.data, non_blocking=True)
        else:
            serving.data, read.data = read.data, serving.data
    if any(serving.is_cuda for serving, _ in pairs):
        torch.cuda.synchronize()
