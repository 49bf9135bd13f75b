"""What SGLang loads first: the target's directory when there is a complete one, else the base model.

The base may still be on its way to the volume (a Job copies it), so a missing one is waited for: a container that
ended instead would be restarted ever more slowly.
"""

import asyncio
import logging
from pathlib import Path

from openclaw_core import versions
from openclaw_engine import target
from openclaw_engine.command import Weights
from openclaw_engine.manifest import IncompleteVersionError, Volume

logger = logging.getLogger(__name__)

MODEL_WAIT_SEC = 1800.0
"""Longest wait for the base model. 0 would end the container at once."""

_POLL_SEC = 1.0


class ModelMissingError(RuntimeError):
    """The base model did not appear on the volume."""


async def first_weights(
    base: Weights, volume: Volume, target_file: Path, *, wait_sec: float = MODEL_WAIT_SEC
) -> Weights:
    """Target or base. ModelMissingError when the base is a directory that does not appear within `wait_sec`."""
    wanted = target.read(target_file)
    if wanted is not None and wanted != versions.BASE:
        try:
            return Weights(str(await asyncio.to_thread(volume.check, wanted)), str(wanted))
        except IncompleteVersionError as error:
            logger.error("target is not complete, starting with the base model", extra={"error": str(error)})
    if base.location.startswith("/"):
        await _wait_for(Path(base.location) / "config.json", wait_sec)
    return base


async def _wait_for(file: Path, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not await asyncio.to_thread(file.exists):
                logger.info("waiting for the base model", extra={"missing": str(file)})
                await asyncio.sleep(_POLL_SEC)
    except TimeoutError as error:
        raise ModelMissingError(f"no model: {file} did not appear within {seconds:.0f} s") from error
