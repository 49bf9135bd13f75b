"""An HTTP proxy before an API server that can make watches go silent without closing them, as a lost NAT entry does.

operator ──http──▶ DeafProxy ──https──▶ API server
                       └── deaf: what the server says on watches is read and thrown away; all else goes through
"""

import asyncio
import ssl
import threading
from enum import Enum, auto

import aiohttp
from aiohttp import web

from openclaw_cluster import bare

_HOP = frozenset({"host", "connection", "keep-alive", "transfer-encoding", "content-length", "content-encoding"})


class Hearing(Enum):
    """What becomes of watches."""

    WELL = auto()
    OPEN_ONES_DEAF = auto()
    """Those open at that moment stay silent for good; later ones are heard."""
    ALL_DEAF = auto()


class DeafProxy:
    """Runs in a thread; `server` is where it listens, for a kubeconfig."""

    def __init__(self, plane: bare.Bare) -> None:
        self._upstream = plane.server
        self._epoch, self._deaf_until_epoch, self._all = 0, 0, False
        self._started, self._stop = threading.Event(), asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self.server = ""

    def __enter__(self) -> "DeafProxy":
        self._thread.start()
        self._started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def hear(self, hearing: Hearing) -> None:
        self._epoch += 1
        self._all = hearing is Hearing.ALL_DEAF
        if hearing is Hearing.OPEN_ONES_DEAF:
            self._deaf_until_epoch = self._epoch

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        # The test's own plane signs its own certificate.
        connector = aiohttp.TCPConnector(limit=0, ssl=ssl._create_unverified_context())
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            app = web.Application(client_max_size=1 << 24)

            async def passed(request: web.Request) -> web.StreamResponse:
                return await self._pass(session, request)

            app.router.add_route("*", "/{path:.*}", passed)
            runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.server = f"http://127.0.0.1:{runner.addresses[0][1]}"
            self._started.set()
            await self._stop.wait()
            await runner.cleanup()

    async def _pass(self, session: aiohttp.ClientSession, request: web.Request) -> web.StreamResponse:
        born = self._epoch
        watch = request.query.get("watch") == "true"
        headers = {key: value for key, value in request.headers.items() if key.lower() not in _HOP}
        body = await request.read()
        async with session.request(
            request.method, self._upstream + request.raw_path, headers=headers, data=body or None
        ) as answer:
            kept = {key: value for key, value in answer.headers.items() if key.lower() not in _HOP}
            reply = web.StreamResponse(status=answer.status, headers=kept)
            await reply.prepare(request)
            async for chunk in answer.content.iter_any():
                if not (watch and (self._all or born < self._deaf_until_epoch)):
                    await reply.write(chunk)
            await reply.write_eof()
            return reply
