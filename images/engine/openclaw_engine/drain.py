"""The way out of an engine: running turns end before SGLang does.

    SIGTERM ─▶ settle (gateways see the pod leave the EndpointSlice) ─▶ SGLang idle, or the limit ─▶ stop

Syncs go on meanwhile, so a pause that is on ends as always. The pod's grace period is longer than all of it.
"""

import asyncio
import logging

from openclaw_engine.sglang import Sglang, SglangError, wait_idle

logger = logging.getLogger(__name__)
SETTLE_SEC = 2.0
"""Until gateways send no new turn: the slice's update takes well below a second."""
LIMIT_SEC = 60.0


async def drained(stop: asyncio.Event, sglang: Sglang, done: asyncio.Event) -> None:
    """Wait for `stop`, let running turns end (≤ LIMIT_SEC), set `done`."""
    await stop.wait()
    try:
        if await sglang.is_ready():
            await asyncio.sleep(SETTLE_SEC)
        await wait_idle(sglang, LIMIT_SEC)
    except SglangError as problem:
        logger.warning("stopping before every turn ended", extra={"error": str(problem)})
    done.set()
