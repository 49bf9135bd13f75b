"""Keeps the fleet's picture true: who is ready, at which version.

```
 loop: every second, or when woken ──▶ each engine: GET /ready, GET /model_info   (≤ 5 s each, side by side)
                                       where versions are adapters also: GET /v1/models
```
While submissions are paused a 503 of /ready is the sync at work: readiness is left as it was, and engines are asked
every 0.1 s. After a hold or an outage a version is not believed until it was asked for again.
"""

import asyncio
import logging
import math
from collections.abc import Callable

import aiohttp
import orjson

from openclaw_gateway.fleet import FAILURES_TO_EJECT, Engine, Fleet, readmit

_log = logging.getLogger(__name__)
EVERY_SEC, EVERY_SEC_PAUSED = 1.0, 0.1
_VERIFY_SEC = 2.0
_TIMEOUT = aiohttp.ClientTimeout(total=5, sock_connect=2)


class Probes:
    """`is_paused` and `now` (monotonic) are the gateway's. `adapters`: versions are LoRA adapters."""

    def __init__(
        self,
        fleet: Fleet,
        http: aiohttp.ClientSession,
        *,
        is_paused: Callable[[], bool],
        now: Callable[[], float],
        adapters: bool = False,
    ) -> None:
        self._adapters = adapters
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
            for engine in engines:
                readmit(engine, self._now())
            if engines:
                await asyncio.wait([self._start(engine) for engine in engines], timeout=2 * EVERY_SEC)
            try:
                async with asyncio.timeout(EVERY_SEC_PAUSED if self._is_paused() else EVERY_SEC):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def verify(self, engine: Engine, *, again: bool = False) -> str | None:
        """The engine's version; asked for (≤ 2 s a try) when something may have changed it, or `again`."""
        if again:
            engine.distrust()
        for _ in range(2):  # a probe that was on its way already may have seen what was before
            if not engine.trusted:
                await asyncio.wait([self._start(engine)], timeout=_VERIFY_SEC)
        return engine.version

    async def verify_rest(self) -> None:
        """Verify every ready engine in doubt."""
        await asyncio.gather(*(self.verify(engine) for engine in self._fleet.ready() if not engine.trusted))

    async def ready_engine(
        self, session: str, version: str | None, timeout_sec: float, *, avoid: Engine | None = None
    ) -> Engine | None:
        """An engine for the session; waits for one to become ready or to have room, None after the timeout."""
        deadline = self._now() + timeout_sec
        while (engine := self._fleet.choose(session, version=version, avoid=avoid, now=self._now())) is None:
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

    def another_ready(self, engine: Engine) -> bool:
        return any(other is not engine for other in self._fleet.ready())

    def any_ready(self) -> bool:
        return bool(self._fleet.ready())

    def distrust(self) -> None:
        """Versions may have changed: ask before believing."""
        for engine in self._fleet.engines.values():
            engine.distrust()
        self.wake()

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
        doubts = engine.doubts
        engine.silent_since = min(engine.silent_since, self._now())
        try:
            async with self._http.get(f"{engine.url}/ready", timeout=_TIMEOUT) as response:
                ready = response.status == 200
            if ready:
                async with self._http.get(f"{engine.url}/model_info", timeout=_TIMEOUT) as response:
                    info = orjson.loads(await response.read())
                    engine.version = str(info["weight_version"])
            if ready and self._adapters:
                engine.adapters = await self._listed(engine)
            engine.trusted, engine.silent_since = engine.doubts == doubts, math.inf
            self._settle(engine, ready)
        except (aiohttp.ClientConnectorError, aiohttp.ServerDisconnectedError):
            self._settle(engine, ready=False)
        except (aiohttp.ClientError, TimeoutError, orjson.JSONDecodeError, KeyError, TypeError):
            engine.trusted = False
            engine.failures += 1
            if engine.failures >= FAILURES_TO_EJECT:
                self._settle(engine, ready=False)

    async def _listed(self, engine: Engine) -> frozenset[str]:
        """Adapters the engine lists: every model that has a parent."""
        async with self._http.get(f"{engine.url}/v1/models", timeout=_TIMEOUT) as response:
            cards = orjson.loads(await response.read())["data"]
            return frozenset(str(card["id"]) for card in cards if card.get("parent"))

    def _settle(self, engine: Engine, ready: bool) -> None:
        if ready:
            engine.failures = 0
        else:
            engine.trusted = False
        if not ready and self._is_paused():
            return
        if engine.ready != ready:
            _log.info("engine %s is %s", engine.address, "ready" if ready else "not ready")
            engine.ready = ready
        self._answered.set()
