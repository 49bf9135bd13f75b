"""Start of the engine container: the sync agent, and SGLang under it."""

import asyncio
import logging
import os
import secrets
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import aiohttp
from aiohttp import web

from openclaw_core import logs, names, placeholders, tasks, versions
from openclaw_core.base_model import ModelMissingError
from openclaw_core.config.components import ConfigError, EngineConfig, token_of
from openclaw_engine import command, start
from openclaw_engine.adapter_agent import AdapterAgent
from openclaw_engine.agent import Agent, EngineLostError
from openclaw_engine.app import make_app
from openclaw_engine.drain import drained
from openclaw_engine.epochs import EpochFile
from openclaw_engine.manifest import Volume
from openclaw_engine.metrics import Metrics
from openclaw_engine.process import SglangEndedError, SglangProcess
from openclaw_engine.sglang import Sglang
from openclaw_engine.staging import Stager
from openclaw_engine.transfer import Receiver

logger = logging.getLogger(__name__)

_STOP_SEC = 20.0
"""SGLang's grace on the way out; the pod's own grace period is longer."""


async def run(config: EngineConfig, token: str) -> None:
    """Serve until SIGTERM and its drain, or until SGLang or a loop ends (raises). Probes are answered all the time."""
    stop, done = tasks.stop_on_signals(), asyncio.Event()
    volume = Volume(Path(names.WEIGHTS_DIR), adapters=config.adapter is not None)
    target_file, metrics = Path(names.TARGET_FILE), Metrics()
    base = command.base_weights(config.model, str(versions.BASE))
    admin_key = secrets.token_urlsafe(32)
    staging = Path(tempfile.mkdtemp(prefix="staging-")) if config.double_buffer else None
    async with aiohttp.ClientSession() as session:
        client = Sglang(session, f"http://127.0.0.1:{names.PORT_SGLANG}", admin_key)
        agent = (Agent if config.adapter is None else AdapterAgent)(
            client,
            volume,
            base_location=base.location,
            in_flight=config.in_flight,
            target_file=target_file,
            epochs=EpochFile(Path(names.EPOCH_FILE)),
            metrics=metrics,
            receiver=_receiver(config, session, client),
            stager=Stager(staging) if staging is not None else None,
        )
        sglang = _sglang(config, agent, base, volume, target_file, admin_key, staging)
        drain = drained(stop, client, done)
        loops = {"sglang": sglang, "agent": agent.run(), "watch": agent.watch(), "drain": drain}
        async with _serving(make_app(agent, metrics, token)):
            await tasks.run_all(loops, stop=done, grace_sec=_STOP_SEC)


def _receiver(config: EngineConfig, session: aiohttp.ClientSession, client: Sglang) -> Receiver:
    device: Literal["cuda", "cpu"] = "cuda" if config.device == "cuda" else "cpu"
    return Receiver(session, client, os.environ.get("HOSTNAME", "engine"), config.tensor_parallel_size, device)


async def _sglang(
    config: EngineConfig,
    agent: Agent,
    base: command.Weights,
    volume: Volume,
    target_file: Path,
    admin_key: str,
    staging: Path | None,
) -> None:
    """Start SGLang on the first weights and stay with it; it ends with this loop."""
    tell, chosen = agent.waits_for_model, agent.starts_with
    if config.adapter is None:
        weights = await start.first_weights(base, volume, target_file, tell, chosen)
    else:
        weights = await start.base_with_adapter(base, volume, target_file, config.adapter, tell, chosen)
        command.refuse_unservable(config, start.model_config(weights))
    arguments = command.arguments(config, weights)
    logger.info("starting SGLang", extra={"version": weights.version, "arguments": arguments})
    environment = command.environment(config, os.environ, staging=staging)
    process = await SglangProcess.start(arguments, environment, admin_key)
    try:
        await process.watch()
    finally:
        await process.stop()


@asynccontextmanager
async def _serving(app: web.Application) -> AsyncIterator[None]:
    """The agent's HTTP server."""
    runner = web.AppRunner(app, shutdown_timeout=2.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "0.0.0.0", names.PORT_AGENT).start()
        yield
    finally:
        await runner.cleanup()


def agent_token(environ: Mapping[str, str]) -> str:
    """Bearer token of the agent's port. ConfigError names the variable of a secret that cannot be meant."""
    if fault := placeholders.variable_fault(environ, names.ENV_HF_TOKEN):
        raise ConfigError(f"{fault}: put the token into the Secret of model.huggingFace.tokenSecretRef")
    return token_of(environ, names.ENV_AGENT_TOKEN, "the operator could not sign in")


def main() -> None:
    logs.configure(names.ENGINE)
    config = EngineConfig.load()
    logs.configure(names.ENGINE, config.training)
    try:
        asyncio.run(run(config, agent_token(os.environ)))
    except (ConfigError, ModelMissingError, SglangEndedError, EngineLostError, tasks.LoopEndedError) as error:
        logger.error("the engine ends", extra={"error": str(error)})
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
