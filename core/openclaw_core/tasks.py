"""Background work of a process: every task that dies ends the process, every wait has a bound.

Each `main` hands its loops to `run_all`; a loop that returns or raises takes the process down, and Kubernetes starts
it again. Nobody waits for ever for a watcher that is gone.
"""

import asyncio
import signal
from collections.abc import Awaitable, Mapping


class LoopEndedError(RuntimeError):
    """A loop that should run for ever returned."""


async def run_all(loops: Mapping[str, Awaitable[object]], *, stop: asyncio.Event, grace_sec: float = 10.0) -> None:
    """Run every loop until `stop` is set (returns) or one of them ends (raises).

    Raises the first failure, or LoopEndedError naming the loop that returned. On the way out all loops are cancelled
    and get `grace_sec` to finish.
    """
    tasks = {name: asyncio.ensure_future(loop) for name, loop in loops.items()}
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([*tasks.values(), stopping], return_when=asyncio.FIRST_COMPLETED)
        for name, task in tasks.items():
            if task.done() and not stop.is_set():
                task.result()
                raise LoopEndedError(f"background loop {name!r} ended")
    finally:
        pending = [stopping, *tasks.values()]
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=grace_sec)


def stop_on_signals() -> asyncio.Event:
    """An event set by SIGTERM or SIGINT. Call inside a running loop."""
    stop = asyncio.Event()
    set_on_signals(stop)
    return stop


def set_on_signals(stop: asyncio.Event) -> None:
    """Have SIGTERM and SIGINT set `stop` (again, after a library took the signals for itself)."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
