"""What SGLang loads first: the target's directory when there is a complete one, else the base model."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from openclaw_core import base_model, versions
from openclaw_engine import target
from openclaw_engine.command import Weights
from openclaw_engine.manifest import IncompleteVersionError, Volume

logger = logging.getLogger(__name__)


async def first_weights(
    base: Weights,
    volume: Volume,
    target_file: Path,
    tell: Callable[[str | None], None],
    *,
    wait_sec: float = base_model.MODEL_WAIT_SEC,
) -> Weights:
    """Target or base. ModelMissingError when the base is a directory that does not appear within `wait_sec`.

    `tell` gets what is waited for, and None afterwards (see `base_model.appears`).
    """
    wanted = target.read(target_file)
    if wanted is not None and wanted != versions.BASE:
        try:
            return Weights(str(await asyncio.to_thread(volume.check, wanted)), str(wanted))
        except IncompleteVersionError as error:
            logger.error("target is not complete, starting with the base model", extra={"error": str(error)})
    if base.location.startswith("/"):
        await base_model.appears(Path(base.location), tell, wait_sec=wait_sec)
    return base
