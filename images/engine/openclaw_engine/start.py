"""What SGLang loads first: the target's directory when there is a complete one, else the base model."""

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from openclaw_core import base_model, versions
from openclaw_core.config.policy_training import Lora
from openclaw_core.versions import ADAPTER_CONFIG_NAME
from openclaw_engine import target
from openclaw_engine.command import Weights, layers
from openclaw_engine.manifest import IncompleteVersionError, Volume

logger = logging.getLogger(__name__)
Tell = Callable[[str | None], None]
Chosen = Callable[[str], None]


async def first_weights(
    base: Weights,
    volume: Volume,
    target_file: Path,
    tell: Tell,
    chosen: Chosen,
    *,
    wait_sec: float = base_model.MODEL_WAIT_SEC,
) -> Weights:
    """Target or base. ModelMissingError when the base is a directory that does not appear within `wait_sec`.

    `tell` gets what is waited for, and None afterwards (see `base_model.appears`). `chosen` gets the version before its
    files are first read: that takes minutes, in which nobody may delete them.
    """
    wanted = target.read(target_file)
    if wanted is not None and wanted != versions.BASE:
        chosen(str(wanted))
        try:
            return Weights(str(await asyncio.to_thread(volume.check, wanted)), str(wanted))
        except IncompleteVersionError as error:
            logger.error("target is not complete, starting with the base model", extra={"error": str(error)})
    chosen(base.version)
    return await _there(base, tell, wait_sec)


async def base_with_adapter(
    base: Weights,
    volume: Volume,
    target_file: Path,
    lora: Lora,
    tell: Tell,
    chosen: Chosen,
    *,
    wait_sec: float = base_model.MODEL_WAIT_SEC,
) -> Weights:
    """The base, and the target's adapter with it, so that SGLang answers nothing before it has both.

    An adapter that is incomplete, or that this engine was not started for (rank or layers changed), is left out:
    SGLang would end over it. ModelMissingError as above.
    """
    chosen(base.version)
    base, wanted = await _there(base, tell, wait_sec), target.read(target_file)
    if wanted is None or wanted == versions.BASE:
        return base
    chosen(str(wanted))
    try:
        directory = await asyncio.to_thread(volume.check, wanted)
        _refuse_unfit(directory, lora)
    except IncompleteVersionError as error:
        logger.error("target is not loadable, starting with the base model", extra={"error": str(error)})
        chosen(base.version)
        return base
    return replace(base, adapter=(str(wanted), str(directory)))


def model_config(base: Weights) -> dict[str, object]:
    """`config.json` of a base model on disk; empty for one on the hub, or when it cannot be read."""
    return _json(Path(base.location) / "config.json")


async def _there(base: Weights, tell: Tell, wait_sec: float) -> Weights:
    if base.location.startswith("/"):
        await base_model.appears(Path(base.location), tell, wait_sec=wait_sec)
    return base


def _refuse_unfit(directory: Path, lora: Lora) -> None:
    config = _json(directory / ADAPTER_CONFIG_NAME)
    rank, modules = config.get("r"), config.get("target_modules")
    fits = isinstance(rank, int) and rank <= lora.rank and isinstance(modules, list) and layers(lora) >= set(modules)
    if not fits:
        raise IncompleteVersionError(
            f"{directory} has rank {rank} on {modules}, this engine serves lora.rank {lora.rank} on {lora.targets}"
        )


def _json(file: Path) -> dict[str, object]:
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
