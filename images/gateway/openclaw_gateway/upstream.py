"""Where a turn goes to its engine: post a request, know when it was written, retry once while that is safe.

An engine that closes an idle connection just as it is used, cannot be reached or refuses work (503) gave the client
nothing: the request is sent once more, to another engine if there is one. Timeouts: connect 5 s (`engine_http`),
silence in `exchanges`.
"""

import asyncio
import contextlib
from collections.abc import Callable

from openclaw_gateway import engine_http, errors, fleet, forwarding
from openclaw_gateway.fleet import Engine
from openclaw_gateway.gate import Gate
from openclaw_gateway.probes import Probes

ENGINE_WAIT_SEC = 10.0
_ENGINES_TRIED = 3
_ADAPTER_LOST = b"LoRA adapter that has never been loaded"
"""SGLang's words: it was restarted since it was last asked, and answers nothing with this adapter."""
_REFUSES_WORK = 503


class AdapterLostError(Exception):
    """The engine does not have the adapter any more; the request did nothing."""


class Upstream:
    """`version`: the one that should answer a session, None while nobody said. `adapters`: it is asked for by name."""

    def __init__(
        self,
        pool: engine_http.Pool,
        gate: Gate,
        probes: Probes,
        version: Callable[[str], str | None],
        now: Callable[[], float],
        *,
        adapters: bool = False,
    ) -> None:
        self._pool, self._gate, self._probes, self._version, self._now = pool, gate, probes, version, now
        self._adapters = adapters

    async def post(self, session: str, path: str, body: bytes, asks: "Asks" = lambda _: None) -> "Call":
        """Send `body` to `path` of the session's engine; the response has begun when this returns. `asks` is told each
        call as it begins, and None when one ends in an error: whoever cancels this knows whom it waited for.

        Raises ApiError: 503 when a pause began, 502 without an engine or when none can be reached, 503 when
        all have their fill.
        """
        failed: Engine | None = None
        for last in (False, True):
            engine = await self._engine(session, failed)
            try:
                call = await self._send(engine, session, path, body, asks, fresh=last)
            except AdapterLostError as error:
                await self._probes.verify(engine, again=True)
                if last:
                    raise errors.bad_gateway("the engine lost the adapter of this version") from error
            except (engine_http.UnreachableError, engine_http.DisconnectedError) as error:
                failed = engine
                self._unreachable(engine, error)
                if last:
                    raise errors.bad_gateway(f"the engine cannot be reached: {type(error).__name__}") from error
            except engine_http.EngineHttpError as error:
                fleet.fault(engine, self._now())
                raise errors.bad_gateway(f"the engine's answer is not HTTP: {type(error).__name__}") from error
            else:
                if last or call.status != _REFUSES_WORK or not self._probes.another_ready(engine):
                    return call
                failed = engine
                call.close()
                asks(None)
        raise AssertionError("unreachable")

    def _unreachable(self, engine: Engine, error: engine_http.EngineHttpError) -> None:
        """A connection that cannot be made says more than one that was closed under us."""
        if isinstance(error, engine_http.UnreachableError):
            engine.ready = False
        else:
            fleet.fault(engine, self._now())
        self._probes.wake()

    async def _engine(self, session: str, failed: Engine | None) -> Engine:
        """A ready engine whose version is known. After a hold the picture may be old: then it is asked for first."""
        await self._gate.enter()
        for _ in range(_ENGINES_TRIED):
            version = self._version(session)
            engine = await self._probes.ready_engine(session, version, ENGINE_WAIT_SEC, avoid=failed)
            if engine is None:
                break
            await self._probes.verify(engine)
            if version is not None and not engine.has(version):
                # One of the others may have it, or have said so while this one was asked.
                await self._probes.verify_rest()
                engine = await self._probes.ready_engine(session, version, ENGINE_WAIT_SEC, avoid=failed)
                if engine is None:
                    break
            if engine.ready:
                return engine
        raise (
            errors.engines_busy() if self._probes.any_ready() else errors.bad_gateway("no engine is ready", "no_engine")
        )

    async def _send(self, engine: Engine, session: str, path: str, body: bytes, asks: "Asks", *, fresh: bool) -> "Call":
        departure = await self._gate.depart()
        call = Call(engine, engine.version, self._gate.pause.epoch, self._now)
        asks(call)
        if self._adapters and (asked_for := engine.answering(self._version(session))) is not None:
            call.version, call.keeps_version = asked_for, True
            body = forwarding.with_adapter(body, asked_for) if asked_for in engine.adapters else body
        try:
            call.exchange = await self._pool.connect(engine.address, fresh=fresh)
            call.status = await call.exchange.post(path, body, departure.sent)
            if call.keeps_version and call.status == 400 and _ADAPTER_LOST in await call.read():
                raise AdapterLostError
        except BaseException as error:
            call.close()
            if not isinstance(error, asyncio.CancelledError):
                asks(None)
            raise
        finally:
            departure.sent()
        return call


class Call:
    """A request an engine is working on. `close` aborts it: SGLang ends the turn when its client goes."""

    def __init__(self, engine: Engine, version: str | None, epoch: int, now: Callable[[], float]) -> None:
        self.engine, self.version, self.epoch, self._now = engine, version, epoch, now
        """The engine's version, and the newest hold seen, when it was sent."""
        self.keeps_version = False
        """The request named its version: whatever the engine loads meanwhile, it ends with that one."""
        self.exchange: engine_http.Exchange | None = None
        self._whole: bytes | None = None
        self.status = 0
        engine.in_flight += 1
        self._open = True

    @property
    def version_now(self) -> str | None:
        """The version that samples the next token, as far as anybody knows."""
        return self.version if self.keeps_version else self.engine.version

    async def chunk(self) -> bytes:
        """What came since the last call; b"" at the end. Raises EngineHttpError."""
        return await self._begun().chunk()

    async def pass_on(self, take: engine_http.Take) -> None:
        """Hand over what comes without a task in between, until `take` refuses something or the answer ends."""
        await self._begun().pass_on(take)

    def _begun(self) -> engine_http.Exchange:
        if self.exchange is None:
            raise RuntimeError("the call has no answer")
        return self.exchange

    def served(self) -> None:
        """The engine did its part."""
        fleet.proven(self.engine)

    def broken(self) -> None:
        """The engine failed this turn."""
        fleet.fault(self.engine, self._now())

    async def read(self) -> bytes:
        """The whole body. Raises ApiError 502."""
        try:
            if self._whole is None:
                self._whole = await self._begun().read()
            return self._whole
        except engine_http.EngineHttpError as error:
            raise errors.bad_gateway("the engine's answer was cut off") from error

    async def drain(self) -> None:
        """Read the end of a stream that said it is done, so that its connection serves again (≤ 1 s)."""
        exchange = self._begun()
        if not exchange.is_complete:
            with contextlib.suppress(engine_http.EngineHttpError, TimeoutError):
                async with asyncio.timeout(1.0):
                    await exchange.read()

    def close(self) -> None:
        if self._open:
            self._open = False
            self.engine.in_flight -= 1
            if self.exchange is not None:
                self.exchange.close()

    def __enter__(self) -> "Call":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


Asks = Callable[[Call | None], None]
