"""`python -m openclaw_environment`: simulated users that talk to the gateway until told to stop."""

import asyncio
import logging
import os
import sys
from collections.abc import Mapping

import aiohttp
from aiohttp import web

from openclaw_core import logs, names, placeholders, tasks
from openclaw_core.config.components import ConfigError, EnvironmentConfig
from openclaw_environment.chat import Chat
from openclaw_environment.journal import Journal
from openclaw_environment.server import Environment, build_app
from openclaw_environment.settings import Settings, SettingsError
from openclaw_environment.users import Users

_log = logging.getLogger(__name__)


async def run(config: EnvironmentConfig, settings: Settings, api_key: str | None, stop: asyncio.Event) -> None:
    """Serve and talk until `stop` is set."""
    journal = Journal()
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None, sock_connect=10)
    ) as session:
        users = Users(settings, Chat(session, config.gateway_url, journal, api_key), journal, config.served_name)
        runner = web.AppRunner(build_app(Environment(users, journal)), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "0.0.0.0", names.PORT_ENVIRONMENT).start()
        try:
            await tasks.run_all({"users": users.run()}, stop=stop)
        finally:
            await runner.cleanup()


async def _main(config: EnvironmentConfig, settings: Settings, key: str | None) -> None:
    await run(config, settings, key, tasks.stop_on_signals())


def api_key(environ: Mapping[str, str]) -> str | None:
    """The gateway's key, None where it asks for none. ConfigError names the variable, never the value."""
    if fault := placeholders.variable_fault(environ, names.ENV_GATEWAY_API_KEY):
        raise ConfigError(f"{fault}: put the gateway's key into the Secret of policyServing.gateway.apiKeySecretRef")
    return environ.get(names.ENV_GATEWAY_API_KEY, "").strip() or None


def main() -> int:
    """Exit code 2 on a faulty configuration, with one log line that names it."""
    try:
        config = EnvironmentConfig.load()
        logs.configure(names.ENVIRONMENT, config.training)
        if config.kind != "simulatedUser":
            raise ConfigError(f"environmentHosting.kind {config.kind!r} is not in this image; it has simulatedUser")
        settings, key = Settings.read(os.environ), api_key(os.environ)
    except (ConfigError, SettingsError) as error:
        logs.configure(names.ENVIRONMENT)
        _log.error("the environment does not start: %s", error)
        return 2
    asyncio.run(_main(config, settings, key))
    return 0


if __name__ == "__main__":
    sys.exit(main())
