"""Start of the engine container: the sync agent, and SGLang under it."""

import asyncio
import logging
import os
import secrets
from pathlib import Path

import aiohttp
from aiohttp import web

from openclaw_core import logs, names, tasks, versions
from openclaw_core.config.components import ConfigError, EngineConfig
from openclaw_engine import command, target
from openclaw_engine.agent import Agent, EngineLostError
from openclaw_engine.app import make_app
from openclaw_engine.manifest import IncompleteVersionError, Volume
from openclaw_engine.metrics import Metrics
from openclaw_engine.process import SglangEndedError, SglangProcess
from openclaw_engine.sglang import Sglang

logger = logging.getLogger(__name__)


async def run(config: EngineConfig, token: str) -> None:
    """Serve until SIGTERM, or until SGLang or a loop ends (raises)."""
    stop = tasks.stop_on_signals()
    volume, target_file = Volume(Path(names.WEIGHTS_DIR)), Path(names.TARGET_FILE)
    base = command.base_weights(config.model, str(versions.BASE))
    weights = await asyncio.to_thread(_first_weights, base, volume, target_file)
    admin_key = secrets.token_urlsafe(32)
    arguments = command.arguments(config, weights)
    logger.info("starting SGLang", extra={"version": weights.version, "arguments": arguments})
    process = await SglangProcess.start(arguments, command.environment(config, os.environ), admin_key)
    try:
        async with aiohttp.ClientSession() as session:
            sglang = Sglang(session, f"http://127.0.0.1:{names.PORT_SGLANG}", admin_key)
            metrics = Metrics()
            agent = Agent(
                sglang,
                volume,
                base_location=base.location,
                in_flight=config.in_flight,
                target_file=target_file,
                metrics=metrics,
            )
            loops = {"sglang": process.watch(), "agent": agent.run(), "watch": agent.watch()}
            async with _serving(make_app(agent, metrics, token)):
                await tasks.run_all(loops, stop=stop)
    finally:
        await process.stop()


def _first_weights(base: command.Weights, volume: Volume, target_file: Path) -> command.Weights:
    """The target's directory when there is a complete one, so that SGLang loads once; else the base model."""
    wanted = target.read(target_file)
    if wanted is None or wanted == versions.BASE:
        return base
    try:
        return command.Weights(str(volume.check(wanted)), str(wanted))
    except IncompleteVersionError as error:
        logger.error("target is not complete, starting with the base model", extra={"error": str(error)})
        return base


class _serving:
    """The agent's HTTP server, as an async context manager."""

    def __init__(self, app: web.Application) -> None:
        self._runner = web.AppRunner(app, shutdown_timeout=2.0)

    async def __aenter__(self) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, "0.0.0.0", names.PORT_AGENT).start()

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()


def main() -> None:
    logs.configure(names.ENGINE)
    config = EngineConfig.load()
    logs.configure(names.ENGINE, config.training)
    token = os.environ.get(names.ENV_AGENT_TOKEN, "")
    if not token:
        raise ConfigError(f"environment variable {names.ENV_AGENT_TOKEN} is not set")
    try:
        asyncio.run(run(config, token))
    except (SglangEndedError, EngineLostError, tasks.LoopEndedError) as error:
        logger.error("the engine ends", extra={"error": str(error)})
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
