"""Checkpoints: all a trainer needs to go on as if it had never stopped.

What is trained (LoRA or all weights), optimizer, random state (`snapshot`), and the numbers in `Progress`, among them
the ids these weights have consumed but whose ack is not known to have arrived. `step-<S>.tmp/` → flush → rename; the
newest `keep` stay.
"""

import json
import re
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from openclaw_trainer.advantage import RunningMean
from openclaw_trainer.snapshot import Snapshot
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

    def save(self, snapshot: Snapshot, progress: Progress) -> None:
        """Write one checkpoint and drop the oldest beyond `keep`. A checkpoint of the same step is replaced."""
        final = self._directory / f"step-{progress.step:08d}"
        scratch = final.with_suffix(".tmp")
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        torch.save(snapshot, scratch / _TENSORS)
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

    def newest(self) -> tuple[Snapshot, Progress] | None:
        """The newest complete checkpoint, None without one."""
        steps = self._steps()
        if not steps:
            return None
        snapshot: Snapshot = torch.load(steps[-1] / _TENSORS, map_location="cpu", weights_only=True)
        return snapshot, _progress(steps[-1])

    def _steps(self) -> list[Path]:
        """Complete checkpoints, oldest first."""
        if not self._directory.is_dir():
            return []
        return sorted(path for path in self._directory.iterdir() if _NAME.match(path.name))


def _progress(checkpoint: Path) -> Progress:
    saved = json.loads((checkpoint / _STATE).read_text())
    saved["baseline"], saved["consumed"] = RunningMean(**saved["baseline"]), tuple(saved["consumed"])
    return Progress(**saved)
