"""Keeps the sender running beside the trainer. A sender that ends costs one transfer, never the trainer."""

import asyncio
import logging
import os
import sys

log = logging.getLogger(__name__)
FIRST_WAIT_SEC, LONGEST_WAIT_SEC = 0.2, 30.0
_STEADY_SEC = 60.0
"""A sender that lived this long had no trouble of its own: the wait begins anew."""
_TERM_GRACE_SEC = 3.0


async def keep_running(device: str, *, command: tuple[str, ...] = ("-m", "openclaw_trainer.sender")) -> None:
    """Start it again whenever it ends, with a growing wait; end it with the caller."""
    wait, clock = FIRST_WAIT_SEC, asyncio.get_running_loop()
    while True:
        started = clock.time()
        process = await asyncio.create_subprocess_exec(sys.executable, *command, env=_environment(device))
        try:
            status = await process.wait()
        finally:
            await _end(process)
        wait = FIRST_WAIT_SEC if clock.time() - started > _STEADY_SEC else min(2 * wait, LONGEST_WAIT_SEC)
        log.warning("the sender ended and is started again", extra={"status": status, "wait_sec": wait})
        await asyncio.sleep(wait)


def _environment(device: str) -> dict[str, str]:
    """Without torchrun's variables: the sender is in no group of the trainer's."""
    ours = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}
    kept = {key: value for key, value in os.environ.items() if key not in ours and "TOKEN" not in key}
    return kept | {"OPENCLAW_SENDER_DEVICE": device}


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_TERM_GRACE_SEC):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
