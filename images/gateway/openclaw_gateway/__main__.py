"""`python -m openclaw_gateway`: reads configuration and environment, serves until told to stop."""

import gc
import logging
import os
import sys

import uvloop

from openclaw_core import logs, names, tasks
from openclaw_core.config.components import ConfigError, GatewayConfig
from openclaw_gateway import main as gateway
from openclaw_gateway.settings import Settings
from openclaw_gateway.store.writer import StoreUnavailableError

_log = logging.getLogger(__name__)
_CUT_ON_PURPOSE = "ASGI callable returned without completing response."


def _is_news(record: logging.LogRecord) -> bool:
    """uvicorn calls it an error when a stream is left open; cutting it off is how we say it broke."""
    return record.getMessage() != _CUT_ON_PURPOSE


async def _run(config: GatewayConfig, settings: Settings) -> None:
    await gateway.run(config, settings, tasks.stop_on_signals())


def main() -> int:
    """Exit code 2 on a faulty configuration, 1 without a store, with one log line that names it."""
    try:
        config = GatewayConfig.load()
        logs.configure(names.GATEWAY, config.training)
        settings = Settings.from_environment(os.environ)
    except ConfigError as error:
        logs.configure(names.GATEWAY)
        _log.error("the gateway does not start: %s", error)
        return 2
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    # Nearly everything dies by its reference count; walking what lives on costs more than the rest waits for.
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    try:
        uvloop.run(_run(config, settings))
    except ConfigError as error:
        _log.error("the gateway does not start: %s", error)
        return 2
    except StoreUnavailableError as error:
        _log.error("the gateway ends: %s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
