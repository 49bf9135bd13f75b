"""HTTP/1.1 to the engines, as much of it as a turn needs: a JSON body goes there, the answer comes part by part.

Written for the hot route: a general client (aiohttp) costs a request and a chunk several times what they cost here, and
it was more than half of what the gateway cost. llhttp parses; connections are kept by address.

    connect ─▶ idle connection, or a new one ─▶ post: head ─▶ chunk … chunk ─▶ b"" ─▶ `close` keeps the connection
                                                                └─ before the end `close` cuts it: SGLang ends the turn
Bounds: 5 s to connect; 6 s until an engine is gone whose machine acknowledges nothing; idle connections go before the
engine's own 5 s; 1 MiB of an answer waits unread, then the socket does. How long an engine may be silent is up to the
caller.
"""

import asyncio
import contextlib
import socket
import zlib
from collections import deque
from collections.abc import Callable
from typing import Any

import httptools

CONNECT_SEC = 5.0
GONE_SEC = 6
"""Without a word of its kernel, which acknowledges what comes however busy the engine is, a peer is gone: its node, or
the way there."""
_SOCKET_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, GONE_SEC // 3),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, GONE_SEC // 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, GONE_SEC * 1000),
)
_IDLE_SEC = 4.0
_MOST_UNREAD = 1 << 20
_JOINED_BELOW = 1 << 16
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


Take = Callable[[bytes], bool]
"""Called with bytes as they arrive. False: it did nothing with them, they are the next chunk. Must not raise."""


class EngineHttpError(Exception):
    """The exchange with an engine failed."""


class UnreachableError(EngineHttpError):
    """No connection could be made, or its other end acknowledges nothing any more; nothing was answered."""


class DisconnectedError(EngineHttpError):
    """The engine closed the connection before it answered anything."""


class NotHttpError(EngineHttpError):
    """What it sent is no answer."""


class CutOffError(EngineHttpError):
    """The connection ended in the middle of the answer."""


class Pool:
    """Connections to engines by `host:port`. `now` is monotonic."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._idle: dict[str, deque[tuple[float, _Connection]]] = {}

    async def connect(self, address: str, *, fresh: bool = False) -> "Exchange":
        """A connection for one request. Raises UnreachableError. `fresh`: none that was idle, and may be closed."""
        idle = None if fresh else self._idle.get(address)
        while idle:
            since, connection = idle.pop()
            if connection.is_open and self._now() - since < _IDLE_SEC:
                return Exchange(self, address, connection)
            connection.close()
        return Exchange(self, address, await _connect(address))

    def keep(self, address: str, connection: "_Connection") -> None:
        idle = self._idle.setdefault(address, deque())
        while idle and self._now() - idle[0][0] >= _IDLE_SEC:
            idle.popleft()[1].close()
        idle.append((self._now(), connection))

    def close(self) -> None:
        for idle in self._idle.values():
            for _, connection in idle:
                connection.close()
        self._idle.clear()


async def _connect(address: str) -> "_Connection":
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECT_SEC):
            _, connection = await loop.create_connection(_Connection, host.strip("[]"), int(port))
    except (OSError, TimeoutError) as error:
        raise UnreachableError(f"{type(error).__name__}: {error}") from error
    return connection


class Exchange:
    """One request and its answer on a connection."""

    def __init__(self, pool: Pool, address: str, connection: "_Connection") -> None:
        self._pool, self._address, self._connection = pool, address, connection
        self._ended = False

    async def post(self, path: str, body: bytes, on_sent: Callable[[], None]) -> int:
        """Send it; the status once the answer's head is here. `on_sent` when the body is with the kernel.

        Raises DisconnectedError, UnreachableError, NotHttpError.
        """
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self._address}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nAccept-Encoding: identity\r\n\r\n"
        ).encode()
        return await self._connection.ask(head, body, on_sent)

    async def chunk(self) -> bytes:
        """What came of the body since the last call; b"" at its end. Raises CutOffError, NotHttpError."""
        return await self._connection.chunk()

    async def pass_on(self, take: Take) -> None:
        """Hand over what comes without a task in between, until `take` refuses something or the answer ends."""
        await self._connection.pass_on(take)

    async def read(self) -> bytes:
        """The rest of the body. Raises CutOffError, NotHttpError."""
        parts = []
        while part := await self._connection.chunk():
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    @property
    def is_complete(self) -> bool:
        return self._connection.is_complete

    def close(self) -> None:
        """Keep the connection if the answer was read to its end, else cut it off."""
        if not self._ended:
            self._ended = True
            if self._connection.serves_again():
                self._pool.keep(self._address, self._connection)
            else:
                self._connection.close()


class _Connection(asyncio.Protocol):
    """One at a time asks and reads; what the engine sends meanwhile waits here."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._parser: Any = None
        self._parts: list[bytes] = []
        self._unread = 0
        self._waiter: asyncio.Future[None] | None = None
        self._error: EngineHttpError | None = None
        self._on_sent: Callable[[], None] | None = None
        self._take: Take | None = None
        self._unpack: Any = None
        self._status = 0
        self._has_length = self._keeps_alive = self._spoiled = self._writes_wait = self._reads_wait = False
        self.is_open, self.is_complete = False, True

    # ------------------------------------------------------------ asking

    async def ask(self, head: bytes, body: bytes, on_sent: Callable[[], None]) -> int:
        self._parser = httptools.HttpResponseParser(self)
        self._parts, self._unread, self._status = [], 0, 0
        self._has_length = self.is_complete = False
        self._unpack = None
        if not self.is_open:
            raise DisconnectedError("the connection is closed")
        if len(body) < _JOINED_BELOW:
            self._transport.write(head + body)
        else:
            self._transport.writelines([head, body])
        if self._writes_wait:
            self._on_sent = on_sent
        else:
            on_sent()
        while not self._status:
            if self._error is not None:
                raise self._error
            await self._news()
        return self._status

    async def chunk(self) -> bytes:
        while True:
            if self._parts:
                parts, self._parts, self._unread = self._parts, [], 0
                if self._reads_wait:
                    self._reads_wait = False
                    self._transport.resume_reading()
                return parts[0] if len(parts) == 1 else b"".join(parts)
            if self._error is not None:
                raise self._error
            if self.is_complete:
                return b""
            await self._news()

    async def pass_on(self, take: Take) -> None:
        if not (self._parts or self.is_complete or self._error):
            self._take = take
            try:
                await self._news()
            finally:
                self._take = None

    async def _news(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def serves_again(self) -> bool:
        whole = self.is_complete and self._error is None and not self._parts
        return whole and self.is_open and self._keeps_alive and not self._spoiled

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._transport.abort()

    # ------------------------------------------------------------ the transport's calls

    def connection_made(self, transport: Any) -> None:
        self._transport, self.is_open = transport, True
        with contextlib.suppress(OSError):
            for option in _SOCKET_OPTIONS:
                transport.get_extra_info("socket").setsockopt(*option)

    def data_received(self, data: bytes) -> None:
        if self.is_complete:
            self.close()  # nobody asked
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(NotHttpError(f"{type(error).__name__}: {error}"))
            self.close()
        if self._take is not None and len(self._parts) == 1 and self._take(self._parts[0]):
            self._parts, self._unread = [], 0
            if not (self.is_complete or self._error):
                return
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        self._sent()
        if self.is_complete:
            return
        if self._status and not self._has_length and error is None:
            self.is_complete = True  # its end is the answer's end
        elif self._status:
            self._fail(CutOffError(str(error or "the connection was closed")))
        elif isinstance(error, TimeoutError):
            self._fail(UnreachableError(f"nothing was acknowledged for {GONE_SEC} s"))
        else:
            self._fail(DisconnectedError(str(error or "the connection was closed")))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def pause_writing(self) -> None:
        self._writes_wait = True

    def resume_writing(self) -> None:
        self._writes_wait = False
        self._sent()

    def _sent(self) -> None:
        call, self._on_sent = self._on_sent, None
        if call is not None:
            call()

    def _fail(self, error: EngineHttpError) -> None:
        if self._error is None:
            self._error = error

    # ------------------------------------------------------------ the parser's calls

    def on_message_begin(self) -> None:
        if self.is_complete:
            self._spoiled = True  # a second answer to one request

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in (b"content-length", b"transfer-encoding"):
            self._has_length = True
        elif name == b"content-encoding" and value.lower() != b"identity":
            if value.lower() not in (b"gzip", b"x-gzip", b"deflate"):
                self._fail(NotHttpError(f"content-encoding {value.decode('latin-1')!r}, which nobody asked for"))
            self._unpack = zlib.decompressobj(_GZIP_OR_ZLIB)

    def on_headers_complete(self) -> None:
        if self.is_complete:
            return
        status = self._parser.get_status_code()
        self._status = status if status >= 200 else 0

    def on_body(self, body: bytes) -> None:
        if self.is_complete:
            return
        if self._unpack is not None:
            body = self._unpack.decompress(body)
            if not body:
                return
        self._parts.append(body)
        self._unread += len(body)
        if self._unread > _MOST_UNREAD and not self._reads_wait:
            self._reads_wait = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        self.is_complete = bool(self._status)  # a 100 Continue is no answer
        self._keeps_alive = self._parser.should_keep_alive()  # llhttp knows it in this moment only
