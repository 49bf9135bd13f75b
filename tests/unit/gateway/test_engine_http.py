"""HTTP to the engines against servers that keep to it, and against some that don't. Real sockets on loopback."""

import asyncio
import contextlib
import gzip
import socket
from typing import Any

import pytest

from openclaw_gateway import engine_http

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def whole(body: bytes, status: str = "200 OK", more: bytes = b"") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n%b\r\n%b" % (status.encode(), len(body), more, body)


def part(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


@contextlib.asynccontextmanager
async def listening(serve: Any) -> Any:
    """`host:port` of a server that gives each connection to `serve`; its connections end with it."""
    connections: list[tuple[asyncio.Task[None], asyncio.StreamWriter]] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await serve(reader, writer)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append((asyncio.create_task(handle(reader, writer)), writer))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task, writer in connections:
            task.cancel()
            await asyncio.wait([task])
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


class Server:
    """Answers each request with `say`, a list of bytes and of waits; None closes. Counts its connections."""

    def __init__(self, *say: Any) -> None:
        self.say, self.connections, self.requests = say, 0, []

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            size = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0])
            self.requests.append((head.partition("\r\n")[0], await reader.readexactly(size)))
            for one in self.say:
                if one is None:
                    writer.close()
                    return
                if isinstance(one, bytes):
                    writer.write(one)
                    await writer.drain()
                else:
                    await one.wait()

    def running(self) -> Any:
        return listening(self._serve)


@pytest.fixture
async def pool():
    made = engine_http.Pool(asyncio.get_running_loop().time)
    yield made
    made.close()


async def ask(pool, address, body=b"{}", sent=lambda: None):
    exchange = await pool.connect(address)
    try:
        status = await exchange.post("/v1/chat/completions", body, sent)
        return status, await exchange.read()
    finally:
        exchange.close()


async def test_one_connection_serves_request_after_request(pool):
    server = Server(whole(b'{"a":1}'))
    async with server.running() as address:
        assert [await ask(pool, address, b"%d" % number) for number in range(3)] == [(200, b'{"a":1}')] * 3
        assert server.connections == 1
        assert server.requests == [("POST /v1/chat/completions HTTP/1.1", b"%d" % number) for number in range(3)]


async def test_parts_of_a_stream_come_one_by_one_and_the_connection_is_kept(pool):
    more, end = asyncio.Event(), asyncio.Event()
    server = Server(CHUNKED + part(b"one"), more, part(b"two")[:4], end, part(b"two")[4:] + END)
    async with server.running() as address:
        exchange = await pool.connect(address)
        assert await exchange.post("/", b"{}", lambda: None) == 200
        assert await exchange.chunk() == b"one"
        more.set()
        assert await exchange.chunk() == b"t"  # however it is cut on its way
        end.set()
        assert await exchange.read() == b"wo" and exchange.is_complete
        assert await exchange.chunk() == b""
        exchange.close()
        assert await ask(pool, address) == (200, b"onetwo") and server.connections == 1


async def test_what_is_taken_at_once_never_reaches_the_reader(pool):
    steps = [asyncio.Event() for _ in range(3)]
    server = Server(CHUNKED, steps[0], part(b"a"), steps[1], part(b"b"), steps[2], part(b"!") + END)
    taken: list[bytes] = []

    def take(data: bytes) -> bool:
        if data == b"!":
            return False
        taken.append(data)
        steps[len(taken)].set()
        return True

    async with server.running() as address:
        exchange = await pool.connect(address)
        await exchange.post("/", b"{}", lambda: None)
        steps[0].set()
        await exchange.pass_on(take)
        assert taken == [b"a", b"b"]
        assert await exchange.read() == b"!"
        exchange.close()


async def test_answer_taken_to_its_end_ends_the_passing_on(pool):
    go = asyncio.Event()
    server = Server(CHUNKED, go, part(b"a") + END)
    async with server.running() as address:
        exchange = await pool.connect(address)
        await exchange.post("/", b"{}", lambda: None)
        go.set()
        async with asyncio.timeout(5):
            await exchange.pass_on(lambda _: True)
        assert exchange.is_complete and await exchange.chunk() == b""
        exchange.close()


async def test_answer_that_is_left_unread_closes_its_connection(pool):
    server = Server(CHUNKED + part(b"one"), asyncio.Event())
    async with server.running() as address:
        exchange = await pool.connect(address)
        await exchange.post("/", b"{}", lambda: None)
        exchange.close()
        replaced = await pool.connect(address)
        assert await replaced.post("/", b"{}", lambda: None) == 200
        assert server.connections == 2
        replaced.close()


@pytest.mark.parametrize(
    ("say", "error"),
    [
        ([None], engine_http.DisconnectedError),
        ([b"HTTP/1.1 200 OK\r\nContent-Le", None], engine_http.DisconnectedError),
        ([b"SSH-2.0-OpenSSH\r\n\r\n"], engine_http.NotHttpError),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", None], engine_http.CutOffError),
        ([CHUNKED + part(b"abc"), None], engine_http.CutOffError),
        ([CHUNKED + b"xyz\r\n"], engine_http.NotHttpError),
        ([whole(b"x", more=b"Content-Encoding: br\r\n")], engine_http.NotHttpError),
        ([whole(b"not gzip", more=b"Content-Encoding: gzip\r\n")], engine_http.NotHttpError),
    ],
)
async def test_engine_that_breaks_off_or_talks_nonsense_is_named(pool, say, error):
    async with Server(*say).running() as address:
        with pytest.raises(error):
            await ask(pool, address)


async def test_peer_whose_machine_acknowledges_nothing_is_gone_in_seconds(pool):
    async with Server().running() as address:
        exchange = await pool.connect(address)
        options = exchange._connection._transport.get_extra_info("socket")
        assert options.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == engine_http.GONE_SEC * 1000
        assert options.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert options.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) < engine_http.GONE_SEC
        exchange.close()


async def test_connection_that_the_kernel_gave_up_says_that_the_engine_is_unreachable(pool):
    async with Server(asyncio.Event()).running() as address:
        exchange = await pool.connect(address)
        asking = asyncio.create_task(exchange.post("/v1/chat/completions", b"{}", lambda: None))
        await asyncio.sleep(0)
        exchange._connection.connection_lost(TimeoutError(110, "Connection timed out"))
        with pytest.raises(engine_http.UnreachableError):
            await asking


async def test_nobody_listening_is_unreachable(pool):
    async with Server().running() as address:
        pass
    with pytest.raises(engine_http.UnreachableError):
        await pool.connect(address)


async def test_engine_that_accepts_no_connection_is_unreachable_after_the_bound(pool, monkeypatch):
    monkeypatch.setattr(engine_http, "CONNECT_SEC", 0.3)
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as sockets:
        server = sockets.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(3):  # more than its queue takes: the kernel drops what comes after
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        began = loop.time()
        with pytest.raises(engine_http.UnreachableError, match="TimeoutError"):
            await pool.connect(f"127.0.0.1:{server.getsockname()[1]}")
        assert 0.2 < loop.time() - began < 2


async def test_answer_without_a_length_ends_with_its_connection(pool):
    server = Server(b"HTTP/1.1 200 OK\r\n\r\nall of it", None)
    async with server.running() as address:
        assert await ask(pool, address) == (200, b"all of it")


async def test_answer_packed_by_something_on_the_way_is_unpacked(pool):
    packed = gzip.compress(b"words " * 100)
    async with Server(whole(packed, more=b"Content-Encoding: gzip\r\n")).running() as address:
        assert await ask(pool, address) == (200, b"words " * 100)


async def test_continue_is_no_answer(pool):
    server = Server(b"HTTP/1.1 100 Continue\r\n\r\n", whole(b"then"))
    async with server.running() as address:
        assert await ask(pool, address) == (200, b"then")


@pytest.mark.parametrize(
    "say",
    [whole(b"x", more=b"Connection: close\r\n"), whole(b"x") + whole(b"another")],
    ids=["closes", "answers twice"],
)
async def test_connection_that_cannot_be_trusted_is_not_used_again(pool, say):
    server = Server(say)
    async with server.running() as address:
        assert await ask(pool, address) == (200, b"x")
        assert await ask(pool, address) == (200, b"x")
        assert server.connections == 2


async def test_idle_connection_goes_before_the_engine_closes_it():
    now = 0.0
    pool, server = engine_http.Pool(lambda: now), Server(whole(b"x"))
    async with server.running() as address:
        for now in (0.0, 3.9, 8.0):  # noqa: B007 - the pool's clock
            await ask(pool, address)
        assert server.connections == 2
        pool.close()


async def test_large_body_is_sent_when_the_kernel_has_it(pool):
    """Before that a pause must not be acknowledged."""
    reads = asyncio.Event()
    order: list[str] = []

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reads.wait()
        order.append("reads")
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(32 << 20)
        writer.write(whole(b"got it"))
        await writer.drain()
        writer.close()

    async with listening(slow) as address:
        asking = asyncio.create_task(ask(pool, address, bytes(32 << 20), lambda: order.append("sent")))
        await asyncio.sleep(0.05)
        assert order == []
        reads.set()
        assert await asking == (200, b"got it")
        assert order == ["reads", "sent"]


async def test_answer_nobody_reads_stops_at_the_socket(pool):
    """A client that is slow holds up its engine's stream; the gateway's memory stays what it was."""
    size = 64 << 20
    piece, written = part(bytes(1 << 16)), 0

    async def pours(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await reader.readuntil(b"\r\n\r\n")
        writer.write(CHUNKED)
        with contextlib.suppress(ConnectionError):
            while written < size:
                writer.write(piece)
                await writer.drain()
                written += 1 << 16
            writer.write(END)
        writer.close()

    async with listening(pours) as address:
        exchange = await pool.connect(address)
        await exchange.post("/", b"", lambda: None)
        before = -1
        while before != written:
            before = written
            await asyncio.sleep(0.3)
        assert written < size / 2
        assert len(await exchange.read()) == size
        exchange.close()
