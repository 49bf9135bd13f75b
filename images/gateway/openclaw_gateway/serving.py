"""The two HTTP servers, and how they stop.

    stop ─▶ unready, still serving (3 s: endpoints are told) ─▶ no new connections ─▶ requests finish (≤ 20 s)
         ─▶ the rest is cut off with an error ─▶ internal port ─▶ store
The store and every loop run until the last request has ended, so nothing that was recorded is lost.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import uvicorn

from openclaw_gateway import connections

_KEEP_ALIVE_SEC = 120  # longer than any ingress keeps its side open
_CUT_SEC = 5
"""Between the cut and the server's own end: error frames go out, turns are stored."""


@dataclass(frozen=True)
class Grace:
    """Seconds of a stop; together less than the pod's terminationGracePeriodSeconds (60)."""

    still_serving: float = 3.0
    drain: float = 20.0


class Server(uvicorn.Server):
    """uvicorn without its own signal handlers: the process has one place for them."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def server(app: object, host: str, port: int, *, drain_sec: float = 1) -> Server:
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        host=host,
        port=port,
        http=connections.BoundedProtocol,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nobody here asks where a client is
        timeout_keep_alive=_KEEP_ALIVE_SEC,
        timeout_graceful_shutdown=int(drain_sec + _CUT_SEC),
    )
    return Server(config)


async def serve(
    public: Server,
    internal: Server,
    stop: asyncio.Event,
    drained: asyncio.Event,
    *,
    grace: Grace,
    on_stop: Callable[[], None],
    cut_off: Callable[[], None],
) -> None:
    """Serve until told to stop; sets `drained` when the last request has ended. Returns early when a server dies.

    `on_stop` makes the gateway unready and ends long polls, `cut_off` ends what is left after the drain.
    """
    serving = [asyncio.ensure_future(one.serve()) for one in (public, internal)]
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([*serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        on_stop()
        if stop.is_set():
            await asyncio.sleep(grace.still_serving)
        public.should_exit = True
        cutting = asyncio.get_running_loop().call_later(grace.drain, cut_off)
        await serving[0]
        cutting.cancel()
        internal.should_exit = True
        await serving[1]
        if stop.is_set():
            drained.set()
            await asyncio.Event().wait()  # `run_all` ends this
    finally:
        stopping.cancel()
        for task in serving:
            task.cancel()
