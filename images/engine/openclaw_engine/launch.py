"""Entry of the SGLang process: puts the control routes behind an admin key that is no argument, then serves.

The sync agent writes the key to this process's standard input. SGLang's own `--admin-api-key` would show it in
`/server_info`, which is open to everybody who may talk to the engine, and in the log; the same middleware of
SGLang's, put in front of the same routes, does not.
"""

import functools
import logging
import os
import sys
import urllib.request
from typing import TextIO

from openclaw_engine.sglang import ADAPTERS_ROUTE

logger = logging.getLogger(__name__)
_FREEZE_SEC = 10.0


def read_key(stream: TextIO) -> str:
    """The first line of `stream`. SystemExit when it is empty: an engine without a key would take any orders."""
    key = stream.readline().strip()
    if not key:
        raise SystemExit("the sync agent sent no admin key on standard input")
    return key


def guard(key: str) -> None:
    """Control routes answer 401 without the key; data routes stay open."""
    from sglang.srt.entrypoints.http_server import app
    from sglang.srt.utils.auth import add_api_key_middleware

    add_api_key_middleware(app, api_key=None, admin_api_key=key)


def freeze(url: str, key: str) -> None:
    """Have SGLang leave what lives for ever out of its garbage collections. A failure is logged, as SGLang does it."""
    headers = {"Authorization": f"Bearer {key}"}
    try:
        urllib.request.urlopen(
            urllib.request.Request(f"{url}/freeze_gc", headers=headers, method="POST"), timeout=_FREEZE_SEC
        ).close()
    except OSError as error:
        logger.warning("SGLang's garbage collector is not frozen: %s", error)


def freeze_after_warmup(key: str) -> None:
    """SGLang asks itself to freeze once it is warm, and knows of no key of ours: it would be refused."""
    from sglang.srt.entrypoints import http_server

    http_server._freeze_gc_after_server_warmup = lambda server_args: freeze(server_args.url(), key)


def show_adapters() -> None:
    """A route of ours: LoRA adapters and the requests that use each, `{name: users}`.

    SGLang counts the users, to know when an adapter may go, and shows them nowhere. Only the process that serves HTTP
    can tell.
    """
    from sglang.srt.entrypoints import http_server

    async def adapters() -> dict[str, int]:
        registry = http_server.get_global_state().tokenizer_manager.lora_registry
        counters = registry._counters
        return {name: counters[ref.lora_id].value() for name, ref in registry.get_all_adapters().items()}

    http_server.app.add_api_route(ADAPTERS_ROUTE, adapters)


def own_schedulers() -> None:
    """Have SGLang start its scheduler processes by an entry of ours."""
    from sglang.srt.entrypoints import http_server

    from openclaw_engine import scheduler

    http_server.launch_server = functools.partial(http_server.launch_server, run_scheduler_process_func=scheduler.run)


def main(arguments: list[str]) -> None:
    key = read_key(sys.stdin)
    from sglang.launch_server import run_server
    from sglang.srt.plugins import load_plugins
    from sglang.srt.server_args import prepare_server_args
    from sglang.srt.utils import kill_process_tree

    load_plugins()
    server_args = prepare_server_args(arguments)
    guard(key)
    freeze_after_warmup(key)
    own_schedulers()
    if "--enable-lora" in arguments:
        show_adapters()
    try:
        run_server(server_args)
    finally:
        kill_process_tree(os.getpid(), include_parent=False)


if __name__ == "__main__":
    main(sys.argv[1:])
