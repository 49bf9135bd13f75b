"""Keeps the fleet's picture true: who is ready, at which version.

```
 loop: every second, or when woken ──▶ each engine: GET /ready, GET /model_info   (≤ 5 s each, side by side)
```
While submissions are paused a 503 of /ready is the sync at work: readiness is left as it was, the version is not
believed until asked again.
"""

import asyncio
import logging
from collections.abc import Callable

import aiohttp
import orjson

from openclaw_gateway.fleet import FAILURES_TO_EJECT, Engine, Fleet

_log = logging.getLogger(__name__)
EVERY_SEC = 1.0
FRESH_SEC = 2.0
"""A version asked for less long ago is taken as the engine's."""
_TIMEOUT = aiohttp.ClientTimeout(total=5, sock_connect=2)


class Probes:
    """`is_paused` and `now` (monotonic) are the gateway's."""

    def __init__(
        self, fleet: Fleet, http: aiohttp.ClientSession, *, is_paused: Callable[[], bool], now: Callable[[], float]
    ) -> None:
        self._fleet, self._http, self._is_paused, self._now = fleet, http, is_paused, now
        self._running: dict[str, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()
        self._answered = asyncio.Event()

    def wake(self) -> None:
        """Ask now."""
        self._wake.set()

    async def run(self) -> None:
        while True:
            self._wake.clear()
            engines = list(self._fleet.engines.values())
            if engines:
                await asyncio.wait([self._start(engine) for engine in engines], timeout=2 * EVERY_SEC)
            try:
                async with asyncio.timeout(EVERY_SEC):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def verify(self, engine: Engine, *, max_age_sec: float = FRESH_SEC) -> str | None:
        """The engine's version, asked for at most `max_age_sec` ago if it answers at all."""
        if self._now() - engine.verified_at > max_age_sec:
            await asyncio.wait([self._start(engine)], timeout=2.0)
        return engine.version

    async def ready_engine(
        self, session: str, version: str | None, timeout_sec: float, *, avoid: Engine | None = None
    ) -> Engine | None:
        """An engine for the session; waits for one to become ready, None after the timeout."""
        deadline = self._now() + timeout_sec
        while (engine := self._fleet.choose(session, version=version, avoid=avoid)) is None:
            left = deadline - self._now()
            if left <= 0:
                return None
            self.wake()
            self._answered.clear()
            try:
                async with asyncio.timeout(min(left, 0.1)):
                    await self._answered.wait()
            except TimeoutError:
                continue
        return engine

    def distrust(self) -> None:
        """Versions may have changed: ask before believing."""
        for engine in self._fleet.engines.values():
            engine.verified_at = float("-inf")

    def _start(self, engine: Engine) -> asyncio.Task[None]:
        """One probe at a time for an engine; a second asker shares it."""
        running = self._running.get(engine.address)
        if running is not None:
            return running
        task = asyncio.create_task(self._probe(engine))
        self._running[engine.address] = task
        task.add_done_callback(lambda _: self._running.pop(engine.address, None))
        return task

    async def _probe(self, engine: Engine) -> None:
        asked_at = self._now()
        try:
            async with self._http.get(f"{engine.url}/ready", timeout=_TIMEOUT) as response:
                ready = response.status == 200
            if ready:
                async with self._http.get(f"{engine.url}/model_info", timeout=_TIMEOUT) as response:
                    info = orjson.loads(await response.read())
                    engine.version, engine.verified_at = str(info["weight_version"]), asked_at
            self._settle(engine, ready)
        except (aiohttp.ClientConnectorError, aiohttp.ServerDisconnectedError):
            self._settle(engine, ready=False)
        except (aiohttp.ClientError, TimeoutError, orjson.JSONDecodeError, KeyError, TypeError):
            engine.failures += 1
            if engine.failures >= FAILURES_TO_EJECT:
                self._settle(engine, ready=False)

    def _settle(self, engine: Engine, ready: bool) -> None:
        if ready:
            engine.failures = 0
        elif self._is_paused():
            return
        if engine.ready != ready:
            _log.info("engine %s is %s", engine.address, "ready" if ready else "not ready")
            engine.ready = ready
        self._answered.set()
