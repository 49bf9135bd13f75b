"""The two HTTP servers, their bounds on headers, and how they stop.

    stop ─▶ unready, still serving (3 s: endpoints are told) ─▶ no new connections ─▶ requests finish (≤ 20 s)
         ─▶ the rest is cut off with an error ─▶ internal port ─▶ store
The store and every loop run until the last request has ended, so nothing that was recorded is lost.
"""

import asyncio
import contextlib
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from openclaw_gateway import asgi

_KEEP_ALIVE_SEC = 120  # longer than any ingress keeps its side open
_CUT_SEC = 5
"""Between the cut and the server's own end: error frames go out, turns are stored."""
_OK = b"HTTP/1.1 200 OK\r\n"
MAX_HEADER_BYTES = 64 << 10
HEADERS_SEC = 30.0
"""A connection whose headers are not whole by then is closed."""


@dataclass(frozen=True)
class Grace:
    """Seconds of a stop; together less than the pod's terminationGracePeriodSeconds (60)."""

    still_serving: float = 3.0
    drain: float = 20.0


def _none() -> None:
    return None


class Client:
    """`asgi.Client` of one request on a connection of ours."""

    def __init__(self, protocol: "BoundedProtocol") -> None:
        self._protocol = protocol
        self._gone: Callable[[], None] | None = None
        self.said_all = False
        self._cycle: Callable[[], RequestResponseCycle | None] = _none

    def begins(self, cycle: RequestResponseCycle) -> None:
        """Weakly: its task keeps the cycle, whose scope keeps this; a way back would leave both to the collector."""
        self._cycle = weakref.ref(cycle)

    def watch(self, gone: Callable[[], None]) -> None:
        self._gone = gone
        if self._protocol.is_lost:
            gone()
        else:
            self._protocol.watched.add(self)
            self._protocol.flow.resume_reading()  # a large body may have stopped it, and with it the news of the end

    def end(self) -> None:
        self._gone = None
        self._protocol.watched.discard(self)

    def takes(self) -> bool:
        cycle = self._cycle()
        return (
            cycle is not None
            and cycle.chunked_encoding is True
            and not cycle.disconnected
            and not cycle.response_complete
            and not self._protocol.flow.write_paused
        )

    def write(self, data: bytes) -> None:
        self._protocol.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def reads(self) -> bool:
        cycle = self._cycle()
        return (
            cycle is not None
            and not cycle.response_started
            and not cycle.disconnected
            and not self._protocol.flow.write_paused
        )

    def answer(self, headers: Mapping[str, str], data: bytes) -> None:
        """What the cycle's `send` does with two messages. Values of headers must be fit for one."""
        cycle = self._cycle()
        if cycle is None:
            raise RuntimeError("an answer to no request")
        lines = [b"%b: %b\r\n" % header for header in cycle.default_headers]
        said = "".join([f"{name}: {value}\r\n" for name, value in headers.items()]).encode("latin-1")
        end = b"content-length: %d\r\n\r\n" if cycle.keep_alive else b"connection: close\r\ncontent-length: %d\r\n\r\n"
        self._protocol.transport.write(b"".join([_OK, *lines, said, end % len(data), data]))
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            self._protocol.transport.close()
        cycle.on_response()

    def lost(self) -> None:
        if self._gone is not None:
            self._gone()


class BoundedProtocol(HttpToolsProtocol):
    """httptools collects any number of headers for any time; this one answers 400 beyond 64 KiB, and waits 30 s.

    It also tells a request directly that its client went: ASGI would have a second task wait for that.
    """

    _header_bytes = 0
    _late: asyncio.TimerHandle | None = None
    _client: Client
    is_lost = _in_headers = False

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.watched: set[Client] = set()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        super().connection_made(transport)
        self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_are_here()
        self.is_lost = True
        super().connection_lost(exc)
        for client in list(self.watched):
            client.lost()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_headers:  # nearly every request's are whole at once
            self._wait_for_headers()

    def on_message_begin(self) -> None:
        self._header_bytes, self._in_headers = 0, True
        super().on_message_begin()
        self._client = Client(self)
        self.scope[asgi.CLIENT] = self._client  # type: ignore[literal-required] # servers may add their own

    def on_message_complete(self) -> None:
        self._client.said_all = True
        super().on_message_complete()

    def on_headers_complete(self) -> None:
        self._headers_are_here()
        super().on_headers_complete()
        self._client.begins(self.cycle)

    def _wait_for_headers(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(HEADERS_SEC, self.transport.close)

    def _headers_are_here(self) -> None:
        self._in_headers = False
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def _count(self, many: int) -> None:
        self._header_bytes += many
        if self._header_bytes > MAX_HEADER_BYTES:
            raise ValueError(f"more than {MAX_HEADER_BYTES >> 10} KiB of headers")  # the parser answers 400


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
        http=BoundedProtocol,
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
