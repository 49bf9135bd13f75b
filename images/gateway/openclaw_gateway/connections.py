"""Connections of clients: uvicorn's HTTP with the bounds it lacks, and a short way from an answer to its socket.

    headers       whole within 30 s and 64 KiB, or the connection is closed
    unread        nothing taken of more than 64 KiB for 60 s: reset
    closed        nothing taken of the rest for 10 s: reset
Both event loops close a connection only when the client has read everything, which one that stopped reading never has.
"""

import asyncio
import contextlib
import socket
import struct
import weakref
from collections.abc import Callable, Mapping
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from openclaw_gateway import asgi

MAX_HEADER_BYTES = 64 << 10
HEADERS_SEC, UNREAD_SEC, CLOSED_SEC = 30.0, 60.0, 10.0
_RESET = struct.pack("ii", 1, 0)
_OK = b"HTTP/1.1 200 OK\r\n"


def _none() -> None:
    return None


class _Transport:
    """A connection's, with an end to the wait for a client that reads nothing."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._look: asyncio.TimerHandle | None = None
        self.write = transport.write  # the hot path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def close(self) -> None:
        self._transport.close()
        self.await_reading(CLOSED_SEC)

    def await_reading(self, most_sec: float) -> None:
        """Cut it off unless the client takes something every `most_sec`."""
        self.relax()
        if left := self._transport.get_write_buffer_size():
            self._look = self._loop.call_later(most_sec, self._cut, left, most_sec)

    def relax(self) -> None:
        """The client keeps up, or is gone."""
        if self._look is not None:
            self._look.cancel()
            self._look = None

    def _cut(self, before: int, most_sec: float) -> None:
        if self._transport.get_write_buffer_size() < before:
            self.await_reading(most_sec)
        else:
            self.abort()

    def abort(self) -> None:
        """Cut it off with a reset: else the kernel would keep up to 4 MiB and wait for the client in its turn."""
        with contextlib.suppress(OSError):
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._transport.abort()


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

    def abort(self) -> None:
        self._protocol.transport.abort()

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
    _bounded: _Transport
    is_lost = _in_headers = False

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.watched: set[Client] = set()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        self._bounded = _Transport(transport, self.loop)
        super().connection_made(cast(asyncio.Transport, self._bounded))
        self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_are_here()
        self.is_lost = True
        super().connection_lost(exc)
        self._bounded.relax()
        for client in list(self.watched):
            client.lost()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_headers:  # nearly every request's are whole at once
            self._wait_for_headers()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._bounded.await_reading(UNREAD_SEC)

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self._bounded.is_closing():
            self._bounded.relax()

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
