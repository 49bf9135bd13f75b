"""The lead, kept by a thread of its own: a busy event loop must not lose it.

    thread:  Leader.run ──leading──▶ main loop: the work begins
                  └──lost──▶ main loop: the process ends;  LAST_WORDS_SEC later: it is ended

With a thousand trainings the main loop is busy for seconds on end, and a renewal that waits its turn there comes too
late. The thread has connections of its own, too. One that lost the lead is gone before the Lease runs out: 10 s without
renewal and LAST_WORDS_SEC are less than its 15 s. A main loop that hangs for good is the liveness probe's matter.
"""

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable

from openclaw_core.kube import Kube
from openclaw_operator.leader import Leader

log = logging.getLogger(__name__)
LAST_WORDS_SEC = 4.0
"""Longest that a process which lost the lead may take to end by itself."""


class Election:
    """One contender: `stand` makes it for a client, `connect` the thread's own client; `end` ends the process with a
    status."""

    def __init__(
        self,
        stand: Callable[[Kube], Leader],
        connect: Callable[[], Kube],
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._stand, self._connect, self._end = stand, connect, end
        self.leading = asyncio.Event()
        self._main = asyncio.get_running_loop()
        self._lost: asyncio.Future[None] = self._main.create_future()
        self._over = threading.Event()
        """Nobody waits for this election any more."""
        self._withdraw: Callable[[], object] = lambda: None

    async def run(self) -> None:
        """Contend until cancelled. Raises LeadershipLostError, or what else ended the thread."""
        thread = threading.Thread(target=self._contend, name="election", daemon=True)
        thread.start()
        try:
            await self._lost
        finally:
            self._over.set()
            self._withdraw()
            # No renewal may be on its way when the Lease is given up.
            await asyncio.to_thread(thread.join, LAST_WORDS_SEC)

    async def release(self, kube: Kube) -> None:
        """Give the Lease up on a clean stop, after all work has ended."""
        if self.leading.is_set():
            await self._stand(kube).release()

    # ------------------------------------------------------------ in the thread

    def _contend(self) -> None:
        try:
            asyncio.run(self._until_over())
        except (Exception, asyncio.CancelledError) as error:  # the thread's outermost frame: what ends it ends all
            if self._over.is_set():
                return
            _ask(self._main, self._fail, error)
            if not self._over.wait(LAST_WORDS_SEC):
                log.critical("the lead is lost and the process hangs: it is ended", extra={"error": str(error)})
                self._end(1)

    async def _until_over(self) -> None:
        async with self._connect() as kube:
            leader = self._stand(kube)
            renewing = asyncio.create_task(leader.run())
            loop = asyncio.get_running_loop()
            self._withdraw = lambda: _ask(loop, renewing.cancel)
            if self._over.is_set():
                renewing.cancel()
            telling = asyncio.create_task(self._told(leader))
            try:
                await renewing
            finally:
                telling.cancel()

    async def _told(self, leader: Leader) -> None:
        await leader.leading.wait()
        _ask(self._main, self.leading.set)

    def _fail(self, error: BaseException) -> None:
        if not self._lost.done():
            self._lost.set_exception(error)


def _ask(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *arguments: object) -> None:
    """Have another thread's loop do it; nothing once that is closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call, *arguments)
