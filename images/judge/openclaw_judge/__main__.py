"""`python -m openclaw_judge`: reads the configuration and the two secrets, then runs the loops until told to stop."""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Mapping

import aiohttp
from aiohttp import web

from openclaw_core import logs, names, placeholders, tasks
from openclaw_core.config.components import ConfigError, JudgeConfig, token_of
from openclaw_judge.endpoint import Endpoint
from openclaw_judge.server import build_app
from openclaw_judge.state import JudgingState
from openclaw_judge.store import Store, StoreError
from openclaw_judge.worker import Worker

_log = logging.getLogger(__name__)


def judge_key(config: JudgeConfig, environ: Mapping[str, str]) -> str | None:
    """The endpoint's key, None when the endpoint asks for none. ConfigError names the variable, never the value."""
    if config.api.api_key_secret_ref is None:
        return None
    variable, ref = config.api.api_key_env, config.api.api_key_secret_ref
    value = environ.get(variable)
    if fault := placeholders.fault(value):
        fix = f"put the judge endpoint's key into Secret {ref.name!r}, key {ref.key!r}"
        raise ConfigError(f"environment variable {variable} is {fault}: {fix}")
    return (value or "").strip()


def gateway_token(environ: Mapping[str, str]) -> str:
    """Bearer token of the gateway's internal port. ConfigError names the variable."""
    return token_of(environ, names.ENV_GATEWAY_TOKEN, "the gateway would refuse us")


async def run(config: JudgeConfig, key: str | None, token: str, worker_name: str, stop: asyncio.Event) -> None:
    """Serve and judge until `stop` is set; raises when a loop dies."""
    state = JudgingState()
    judging = config.reward_judging
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None, sock_connect=10)
    ) as session:
        endpoint = Endpoint(
            session,
            base_url=config.endpoint,
            key=key,
            model=config.judge.model,
            temperature=config.judge.temperature,
            max_tokens=config.judge.max_tokens,
            timeout_sec=judging.judge_timeout_sec,
            concurrency=judging.judge_concurrency,
            state=state,
        )
        store = Store(session, config.gateway_url, token, worker_name)
        worker = Worker(store, endpoint, state, votes=judging.votes, concurrency=judging.judge_concurrency)
        runner = web.AppRunner(build_app(state), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "0.0.0.0", names.PORT_JUDGE).start()
        loops = {"lease": worker.lease_loop(), "extend": worker.extend_loop(), "probe": worker.probe_loop()}
        try:
            await tasks.run_all(loops, stop=stop)
        finally:
            with contextlib.suppress(StoreError):
                await worker.give_back()
            await runner.cleanup()


async def _main(config: JudgeConfig, key: str | None, token: str) -> None:
    await run(config, key, token, os.environ.get(names.ENV_POD_NAME, "judge"), tasks.stop_on_signals())


def main() -> int:
    """Exit code 2 on a faulty configuration, with one log line that names it."""
    try:
        config = JudgeConfig.load()
        logs.configure(names.JUDGE, config.training)
        key, token = judge_key(config, os.environ), gateway_token(os.environ)
    except ConfigError as error:
        logs.configure(names.JUDGE)
        _log.error("the judge does not start: %s", error)
        return 2
    asyncio.run(_main(config, key, token))
    return 0


if __name__ == "__main__":
    sys.exit(main())
