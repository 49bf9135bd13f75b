"""Where the base model lies on this pod's disk."""

import json
from collections.abc import Callable
from pathlib import Path

from huggingface_hub import snapshot_download

from openclaw_core import base_model
from openclaw_core.config.components import ConfigError
from openclaw_core.config.model import Model


async def present(model: Model, weights: Path, tell: Callable[[str | None], None]) -> None:
    """Wait until `locate` can find it; ModelMissingError after `MODEL_WAIT_SEC`. A repository is not waited for."""
    if model.hugging_face is None:
        await base_model.appears(_directory(model, weights), tell)


def locate(model: Model, weights: Path) -> Path:
    """Directory with config.json, tokenizer and safetensors; ConfigError when there is none.

    A relative `path` lies below the weights volume, an absolute one in the image; a Hugging Face repository is
    downloaded into HF_HOME (its token is the variable HF_TOKEN).
    """
    if model.hugging_face is not None:
        source = model.hugging_face
        return Path(snapshot_download(source.repo, revision=source.revision))
    directory = _directory(model, weights)
    try:
        json.loads((directory / "config.json").read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"model.path {model.path!r}: no model at {directory}: {error}") from error
    return directory


def _directory(model: Model, weights: Path) -> Path:
    return weights / (model.path or "")
