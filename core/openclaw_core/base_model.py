"""Waits for a base model that may still be on its way to the volume.

A Job of the admin's copies it there while engine and trainer start. A process that ended instead of waiting would be
restarted ever more slowly, and would find the model minutes after it came.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger(__name__)

MODEL_WAIT_SEC = 1800.0
"""Longest wait for the base model. 0 would end the process at once."""
TELL_AFTER_SEC = 15.0
"""A copy under way is no fault: only after this long is the absence reported."""
_POLL_SEC = 1.0


class ModelMissingError(RuntimeError):
    """The base model did not appear on the volume."""


def missing(file: Path, field: str) -> str:
    """One sentence for the admin who named the model in `field`."""
    return f"{field}: there is no {file}; put the model there, or correct the path"


async def appears(directory: Path, tell: Callable[[str | None], None], *, wait_sec: float = MODEL_WAIT_SEC) -> None:
    """Return once `directory` has a config.json; ModelMissingError when it has none after `wait_sec`.

    `tell` gets one sentence for the admin after TELL_AFTER_SEC, and None when the model is there.
    """
    file, waited = directory / "config.json", 0.0
    while not file.exists():  # a stat; a volume too slow for it would fail SGLang as well
        if waited >= wait_sec:
            raise ModelMissingError(f"no model: {file} did not appear within {wait_sec:.0f} s")
        if waited >= TELL_AFTER_SEC:
            tell(missing(file, "spec.model.path"))
        log.info("waiting for the base model", extra={"missing": str(file)})
        await asyncio.sleep(_POLL_SEC)
        waited += _POLL_SEC
    tell(None)
