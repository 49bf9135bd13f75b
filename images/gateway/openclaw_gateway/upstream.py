"""One shared HTTP session to the engines: post a request, know when it was written, retry once while that is safe.

An engine that closes an idle connection just as it is used, cannot be reached or refuses work (503) gave the client
nothing: the request is sent once more, to another engine if there is one. Timeouts: connect 5 s here, silence in
`exchanges`.
"""

import asyncio
import contextlib
import io
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import aiohttp

from openclaw_gateway import errors, fleet, forwarding
from openclaw_gateway.fleet import Engine
from openclaw_gateway.gate import Gate
from openclaw_gateway.probes import Probes

ENGINE_WAIT_SEC = 10.0
_ENGINES_TRIED = 3
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=5)
"""How long an engine may be silent is looked after with all requests at once (`exchanges`)."""
_READ_BUFFER = 1 << 20
_ADAPTER_LOST = b"LoRA adapter that has never been loaded"
"""SGLang's words: it was restarted since it was last asked, and answers nothing with this adapter."""
_LARGE_BODY = 1 << 20
_REFUSES_WORK = 503


class AdapterLostError(Exception):
    """The engine does not have the adapter any more; the request did nothing."""


def http_session() -> aiohttp.ClientSession:
    """No connection limit (the default of 100 stalls the 101st stream); idle connections go before the engine's 5 s."""
    trace = aiohttp.TraceConfig()
    trace.on_request_chunk_sent.append(_sent)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=4.0),
        timeout=_TIMEOUT,
        read_bufsize=_READ_BUFFER,
        trace_configs=[trace],
    )


async def _sent(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: Any) -> None:
    call = context.trace_request_ctx
    if call is not None:
        call()


class Upstream:
    """`version` is the one the fleet serves, None while nobody said. `adapters`: it is asked for by name."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        gate: Gate,
        probes: Probes,
        version: Callable[[], str | None],
        now: Callable[[], float],
        *,
        adapters: bool = False,
    ) -> None:
        self._http, self._gate, self._probes, self._version, self._now = http, gate, probes, version, now
        self._adapters = adapters

    async def post(self, session: str, path: str, body: bytes) -> "Call":
        """Send `body` to `path` of the session's engine; the response has begun when this returns.

        Raises ApiError: 503 when a pause began, 502 without an engine or when none can be reached, 503 when
        all have their fill.
        """
        failed: Engine | None = None
        for last in (False, True):
            engine = await self._engine(session, failed)
            try:
                call = await self._send(engine, path, body)
            except AdapterLostError as error:
                await self._probes.verify(engine, again=True)
                if last:
                    raise errors.bad_gateway("the engine lost the adapter of this version") from error
            except aiohttp.ClientConnectionError as error:
                failed = engine
                self._unreachable(engine, error)
                if last:
                    raise errors.bad_gateway(f"the engine cannot be reached: {type(error).__name__}") from error
            except aiohttp.ClientError as error:
                fleet.fault(engine, self._now())
                raise errors.bad_gateway(f"the engine's answer is not HTTP: {type(error).__name__}") from error
            else:
                if last or call.status != _REFUSES_WORK or not self._probes.another_ready(engine):
                    return call
                failed = engine
                call.close()
        raise AssertionError("unreachable")

    def _unreachable(self, engine: Engine, error: aiohttp.ClientConnectionError) -> None:
        """A connection that cannot be made says more than one that was closed under us."""
        if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
            engine.ready = False
        else:
            fleet.fault(engine, self._now())
        self._probes.wake()

    async def _engine(self, session: str, failed: Engine | None) -> Engine:
        """A ready engine whose version is known. After a hold the picture may be old: then it is asked for first."""
        await self._gate.enter()
        for _ in range(_ENGINES_TRIED):
            engine = await self._probes.ready_engine(session, self._version(), ENGINE_WAIT_SEC, avoid=failed)
            if engine is None:
                break
            await self._probes.verify(engine)
            if engine.ready:
                return engine
        raise (
            errors.engines_busy() if self._probes.any_ready() else errors.bad_gateway("no engine is ready", "no_engine")
        )

    async def _send(self, engine: Engine, path: str, body: bytes) -> "Call":
        departure = await self._gate.depart()
        call = Call(engine, engine.version, self._gate.pause.epoch, self._now)
        if self._adapters and (asked_for := engine.answering(self._version())) is not None:
            call.version, call.keeps_version = asked_for, True
            body = forwarding.with_adapter(body, asked_for) if asked_for in engine.adapters else body
        # A large body is written in parts, so the first part's trace does not say that it is sent.
        large = len(body) > _LARGE_BODY
        try:
            call.response = await self._http.post(
                engine.url + path,
                data=io.BytesIO(body) if large else body,
                headers={"Content-Type": "application/json", "Content-Length": str(len(body))},
                trace_request_ctx=None if large else departure.sent,
            )
            if call.keeps_version and call.status == 400 and _ADAPTER_LOST in await call.read():
                raise AdapterLostError
        except BaseException:
            call.close()
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
        self.response: aiohttp.ClientResponse | None = None
        engine.in_flight += 1
        self._open = True

    @property
    def version_now(self) -> str | None:
        """The version that samples the next token, as far as anybody knows."""
        return self.version if self.keeps_version else self.engine.version

    @property
    def status(self) -> int:
        return self.response.status if self.response is not None else 0

    def chunks(self) -> aiohttp.StreamReader:
        if self.response is None:
            raise RuntimeError("the call has no response")
        return self.response.content

    def served(self) -> None:
        """The engine did its part."""
        fleet.proven(self.engine)

    def broken(self) -> None:
        """The engine failed this turn."""
        fleet.fault(self.engine, self._now())

    async def read(self) -> bytes:
        """The whole body. Raises ApiError 502/504."""
        if self.response is None:
            raise RuntimeError("the call has no response")
        try:
            return await self.response.read()
        except TimeoutError as error:
            raise errors.timed_out("the engine stopped answering") from error
        except aiohttp.ClientError as error:
            raise errors.bad_gateway(f"the engine's answer was cut off: {type(error).__name__}") from error

    async def drain(self) -> None:
        """Read the end of a stream that said it is done, so that its connection serves again (≤ 1 s)."""
        if self.response is not None:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with asyncio.timeout(1.0):
                    await self.response.content.read()

    def close(self) -> None:
        if self._open:
            self._open = False
            self.engine.in_flight -= 1
            if self.response is not None:
                self.response.close()

    def __enter__(self) -> "Call":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
