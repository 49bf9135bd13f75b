"""Checkpoints: all a trainer needs to go on as if it had never stopped.

What is trained (LoRA or all weights), optimizer, random state, step, version, trainer epoch, baseline, and the ids that
this state has consumed but whose ack is not known to have arrived. `step-<S>.tmp/` → flush → rename; the newest `keep`
stay. Frozen weights are not in it: they are the base model's.
"""

import json
import re
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from openclaw_trainer.advantage import RunningMean
from openclaw_trainer.step import Learner
from openclaw_trainer.volume import flush

_NAME = re.compile(r"^step-(\d+)$")
_STATE, _TENSORS = "state.json", "tensors.pt"


@dataclass(frozen=True)
class Progress:
    """The numbers of a trainer's life. `consumed`: ids trained into these weights and not yet acked for sure."""

    step: int = 0
    version: int = 0
    epoch: int = 0
    baseline: RunningMean = field(default_factory=RunningMean)
    consumed: tuple[int, ...] = ()


class Checkpoints:
    """Checkpoints below one directory."""

    def __init__(self, directory: Path, keep: int) -> None:
        self._directory, self._keep = directory, keep

    def save(self, learner: Learner, progress: Progress) -> None:
        """Write one checkpoint and drop the oldest beyond `keep`. A checkpoint of the same step is replaced."""
        final = self._directory / f"step-{progress.step:08d}"
        scratch = final.with_suffix(".tmp")
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        torch.save(_tensors(learner), scratch / _TENSORS)
        (scratch / _STATE).write_text(json.dumps(asdict(progress)))
        for file in scratch.iterdir():
            flush(file)
        flush(scratch)
        if final.exists():
            shutil.rmtree(final)
        scratch.rename(final)
        flush(self._directory)
        for old in self._steps()[: -self._keep]:
            shutil.rmtree(old, ignore_errors=True)

    def newest(self) -> Progress | None:
        """Numbers of the newest complete checkpoint, None without one."""
        return next((_progress(path) for path in reversed(self._steps())), None)

    def restore(self, learner: Learner) -> Progress:
        """Load the newest checkpoint into `learner`; the initial Progress without one."""
        steps = self._steps()
        if not steps:
            return Progress()
        saved = torch.load(steps[-1] / _TENSORS, map_location="cpu", weights_only=True)
        _load_tensors(learner, saved)
        return _progress(steps[-1])

    def _steps(self) -> list[Path]:
        """Complete checkpoints, oldest first."""
        if not self._directory.is_dir():
            return []
        return sorted(path for path in self._directory.iterdir() if _NAME.match(path.name))


def _progress(checkpoint: Path) -> Progress:
    saved = json.loads((checkpoint / _STATE).read_text())
    saved["baseline"], saved["consumed"] = RunningMean(**saved["baseline"]), tuple(saved["consumed"])
    return Progress(**saved)


def _tensors(learner: Learner) -> dict[str, Any]:
    return {
        "parameters": {name: p.detach().cpu() for name, p in learner.policy.trainable().items()},
        "optimizer": learner.optimizer.state_dict(),
        "rng": torch.get_rng_state(),
        "cuda_rng": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


@torch.no_grad()
def _load_tensors(learner: Learner, saved: dict[str, Any]) -> None:
    parameters = learner.policy.trainable()
    if set(parameters) != set(saved["parameters"]):
        raise CheckpointMismatchError("the checkpoint trains other parameters than this configuration (lora changed?)")
    for name, parameter in parameters.items():
        parameter.copy_(saved["parameters"][name])
    learning_rates = [group["lr"] for group in learner.optimizer.param_groups]
    learner.optimizer.load_state_dict(saved["optimizer"])
    for group, rate in zip(learner.optimizer.param_groups, learning_rates, strict=True):
        group["lr"] = rate  # an edited learningRate counts from the next step on
    torch.set_rng_state(saved["rng"])
    if saved["cuda_rng"]:
        torch.cuda.set_rng_state_all(saved["cuda_rng"])


class CheckpointMismatchError(RuntimeError):
    """The checkpoint does not fit the configured model."""
