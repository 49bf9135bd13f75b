"""Start of a judge model's container: SGLang alone, `python -m openclaw_engine.judge_model`.

    config.json ──▶ model on the volume? ──▶ arguments, environment ──▶ this process becomes `openclaw_engine.launch`

Nobody learns the admin key, so that SGLang's control routes stay shut: whoever reaches the port can only ask.
"""

import logging
import os
import secrets
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from openclaw_core import base_model, logs, names, placeholders
from openclaw_core.base_model import ModelMissingError
from openclaw_core.config.components import ConfigError, JudgeModelConfig
from openclaw_engine import command

logger = logging.getLogger(__name__)
MODEL_WAIT_SEC = 60.0
"""Longest wait for a model on the volume, which a Job may still be copying; then the container ends and says so."""
_POLL_SEC = 1.0


def until_there(location: str, wait_sec: float = MODEL_WAIT_SEC) -> None:
    """ModelMissingError when a model that should be a directory has no config.json after `wait_sec`."""
    file, deadline = Path(location) / "config.json", time.monotonic() + wait_sec
    while location.startswith("/") and not file.exists():
        if time.monotonic() >= deadline:
            raise ModelMissingError(base_model.missing(file, "spec.rewardJudging.deployed.model.path"))
        time.sleep(_POLL_SEC)


def become_sglang(arguments: list[str], environment: Mapping[str, str]) -> NoReturn:
    """Replace this process by SGLang, its admin key on standard input."""
    reading, writing = os.pipe()
    os.write(writing, f"{secrets.token_urlsafe(32)}\n".encode())
    os.close(writing)
    os.dup2(reading, 0)
    os.execve(sys.executable, [sys.executable, "-m", "openclaw_engine.launch", *arguments], dict(environment))


def main() -> None:
    logs.configure(names.JUDGE_MODEL)
    try:
        config = JudgeModelConfig.load()
        if fault := placeholders.variable_fault(os.environ, names.ENV_HF_TOKEN):
            field = "rewardJudging.deployed.model.huggingFace.tokenSecretRef"
            raise ConfigError(f"{fault}: put the token into the Secret of {field}")
        arguments = command.judge_arguments(config)
        until_there(arguments[arguments.index("--model-path") + 1])
    except (ConfigError, ModelMissingError) as error:
        logger.error("the judge model ends", extra={"error": str(error)})
        raise SystemExit(1) from error
    logger.info("starting SGLang", extra={"arguments": arguments})
    become_sglang(arguments, command.environment(config, os.environ))


if __name__ == "__main__":
    main()
