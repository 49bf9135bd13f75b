"""The servers' bounds and their stop: no request that began is lost."""

import asyncio
import dataclasses
import errno
import gc
import json
import socket

import aiohttp
import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from openclaw_gateway import asgi, connections, errors, serving
from tests.fakes.engine import FakeEngine, Knobs
from tests.fakes.hostile_engine import HostileEngine
from tests.unit.gateway.running import config, conversation, running

USER = conversation("Hi")


async def raw(gateway, data, timeout=5.0):
    """What a bare socket gets back until the server closes it."""
    host, port = gateway.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    try:
        async with asyncio.timeout(timeout):
            return await reader.read()
    finally:
        writer.close()


async def test_answered_request_leaves_nothing_to_the_garbage_collector():
    """Streams last minutes: what waits for a collection of old objects is memory that only grows."""

    def kept():
        return sum(type(found) is RequestResponseCycle for found in gc.get_objects())

    wide = config(policy_training={"rollout_batch_size": 64})
    async with FakeEngine(reply="hello") as engine, running(engine, gateway=wide) as gateway:
        gc.collect()
        before = kept()
        gc.disable()
        try:
            for _ in range(10):
                await stream_of(gateway.url, gateway.http)
                await gateway.chat(*USER)
            assert kept() - before <= 4  # the last of each connection
        finally:
            gc.enable()


async def test_headers_beyond_the_limit_are_refused_while_they_come():
    async with running() as gateway:
        lines = b"".join(b"x-%d: %s\r\n" % (n, b"y" * 1000) for n in range(70))
        answer = await raw(gateway, b"GET /healthz HTTP/1.1\r\nhost: x\r\n" + lines)  # never ended
        assert answer.startswith(b"HTTP/1.1 400")
        fine = b"".join(b"x-%d: %s\r\n" % (n, b"y" * 1000) for n in range(50))
        request = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n" + fine + b"\r\n"
        assert (await raw(gateway, request)).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nhost:"])
async def test_connection_without_whole_headers_is_closed(monkeypatch, sent):
    monkeypatch.setattr(connections, "HEADERS_SEC", 0.2)
    async with running() as gateway:
        assert await raw(gateway, sent) == b""


async def test_kept_alive_connection_may_be_silent_between_requests(monkeypatch):
    monkeypatch.setattr(connections, "HEADERS_SEC", 0.2)
    async with running() as gateway:
        host, port = gateway.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        for _ in range(2):
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert (await reader.readuntil(b'{"ok":true}')).startswith(b"HTTP/1.1 200")
            await asyncio.sleep(0.5)
        writer.close()


async def test_later_request_without_whole_headers_is_closed_too(monkeypatch):
    monkeypatch.setattr(connections, "HEADERS_SEC", 0.2)
    async with running() as gateway:
        answer = await raw(gateway, b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\nGET /healthz HTTP/1.1\r\nhost:")
        assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(b'{"ok":true}')


@pytest.mark.parametrize(
    ("version", "asked", "told"),
    [(b"1.1", b"connection: close\r\n", True), (b"1.0", b"", True), (b"1.1", b"", False)],
)
async def test_answer_says_whether_the_connection_stays(version, asked, told):
    body = json.dumps({"messages": USER}).encode()
    head = b"POST /v1/chat/completions HTTP/%b\r\nhost: x\r\n%bcontent-length: %d\r\n\r\n" % (version, asked, len(body))
    last = b"" if told else b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    async with FakeEngine(reply="Hello") as engine, running(engine) as gateway:
        answer = await raw(gateway, head + body + last)
        said, _, rest = answer.partition(b"\r\n\r\n")
        assert said.startswith(b"HTTP/1.1 200 OK\r\n") and b"\r\nx-request-id: " in said and b"\r\ndate: " in said
        assert (b"\r\nconnection: close" in said) is told
        length = int(said.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        assert json.loads(rest[:length])["choices"][0]["message"]["content"] == "Hello"
        assert rest[length:].startswith(b"" if told else b"HTTP/1.1 200")


async def test_body_that_stops_coming_is_answered_408(monkeypatch):
    monkeypatch.setattr(asgi, "BODY_PART_SEC", 0.2)
    async with running() as gateway:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\nconnection: close\r\n\r\n{"
        answer = await raw(gateway, head)
        assert answer.startswith(b"HTTP/1.1 408") and b"body_timeout" in answer


async def test_more_requests_than_there_is_room_for_are_refused():
    async with (
        FakeEngine(reply="x" * 50, knobs=Knobs(token_delay_sec=0.05)) as engine,
        running(engine, gateway=config(policy_serving={"gateway": {"max_concurrent": 1}})) as gateway,
    ):
        room = gateway.parts.exchanges.limits.most
        headers = {"X-Turn-Type": "side"}
        asked = [asyncio.create_task(gateway.post(USER, headers=headers)) for _ in range(room + 3)]
        async with asyncio.timeout(20):
            answers = await asyncio.gather(*asked)
        refused = [body["error"]["code"] for status, body in answers if status == 503]
        assert refused == ["overloaded"] * 3


class Stopped:
    """Both servers of a gateway, told to stop by `stop`."""

    def __init__(self, parts, grace):
        self.public = serving.server(parts.public, "127.0.0.1", 0, drain_sec=grace.drain)
        self.internal = serving.server(parts.internal, "127.0.0.1", 0)
        self.stop, self.drained = asyncio.Event(), asyncio.Event()
        self.task = asyncio.create_task(
            serving.serve(
                self.public,
                self.internal,
                self.stop,
                self.drained,
                grace=grace,
                on_stop=parts.stop,
                cut_off=lambda: parts.exchanges.end_all(errors.stopping),
            )
        )

    async def url(self):
        async with asyncio.timeout(5):
            while not self.public.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.01)
        return f"http://127.0.0.1:{self.public.servers[0].sockets[0].getsockname()[1]}"


async def stream_of(url, http):
    async with http.post(f"{url}/v1/chat/completions", json={"messages": USER, "stream": True}) as response:
        data = b""
        try:
            async for chunk in response.content.iter_any():
                data += chunk
        except aiohttp.ClientError as error:
            return data, type(error).__name__
        return data, None


@pytest.mark.parametrize("drain", [20.0, 0.3])
async def test_stop_lets_streams_finish_within_the_bound_and_cuts_the_rest_with_an_error(drain):
    knobs = Knobs(token_delay_sec=0.05)
    async with FakeEngine(reply="x" * 20, knobs=knobs) as engine, running(engine) as gateway:
        stopped = Stopped(gateway.parts, serving.Grace(still_serving=0.3, drain=drain))
        url = await stopped.url()
        stream = asyncio.create_task(stream_of(url, gateway.http))
        await asyncio.sleep(0.2)
        stopped.stop.set()
        await asyncio.sleep(0.1)
        async with gateway.http.get(f"{url}/readyz") as response:
            assert response.status == 503  # unready, and still serving
        data, broken = await stream
        async with asyncio.timeout(10):
            await stopped.drained.wait()
        stats = await gateway.stats()
        if drain > 1:
            assert data.endswith(b"data: [DONE]\n\n") and broken is None
            assert (stats.waiting.next_state, stats.dropped) == (1, {})
        else:
            assert broken is not None
            assert json.loads(data.rstrip().rpartition(b"data: ")[2])["error"]["code"] == "stopping"
            assert (stats.waiting.generating, stats.dropped) == (0, {"gateway_lost": 1})
        with pytest.raises(aiohttp.ClientConnectionError):
            async with gateway.http.get(f"{url}/healthz"):
                pass
        stopped.task.cancel()


async def unread(gateway, url=None, **body):
    """A socket on which a chat was asked and whose other end reads nothing."""
    host, port = (url or gateway.url).removeprefix("http://").split(":")
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, (host, int(port)))
    await ask(client, **body)
    return client


async def ask(client, **body):
    data = json.dumps({"messages": USER} | body).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(data)
    await asyncio.get_running_loop().sock_sendall(client, head + data)


async def reset(client, within_sec=10.0):
    """Returns when the server has broken the connection off."""
    async with asyncio.timeout(within_sec):
        while client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != errno.ECONNRESET:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    client.close()


async def says_much(talk):
    """More than the kernels take of an answer that nobody reads."""
    await talk.reply({"content": "x" * 12_000_000}, connection="keep-alive")


async def answered(gateway, many=1):
    async with asyncio.timeout(20):
        while (await gateway.stats()).dropped != {"no_ids": many}:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_client_that_stops_reading_ends_the_engines_work_and_its_connection():
    """A reader that takes nothing: the buffers fill, then the turn is given up."""
    async with FakeEngine(reply="x" * 400_000) as engine, running(engine) as gateway:
        gateway.parts.exchanges.limits = dataclasses.replace(gateway.parts.exchanges.limits, client_sec=0.5)
        client = await unread(gateway, stream=True)
        async with asyncio.timeout(30):
            while engine.running or not engine.requests:  # noqa: ASYNC110 - the engine is another process' place
                await asyncio.sleep(0.05)
            while (await gateway.stats()).dropped != {"client_gone": 1}:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await reset(client)


async def test_answer_that_nobody_reads_does_not_keep_its_connection(monkeypatch):
    monkeypatch.setattr(serving, "_KEEP_ALIVE_SEC", 0.3)
    monkeypatch.setattr(connections, "CLOSED_SEC", 0.3)
    async with HostileEngine(says_much) as engine, running(engine) as gateway:
        client = await unread(gateway)
        await answered(gateway)
        await reset(client)


async def test_answer_that_nobody_reads_does_not_keep_the_gateway_from_its_stop(monkeypatch):
    monkeypatch.setattr(connections, "CLOSED_SEC", 0.3)
    async with HostileEngine(says_much) as engine, running(engine) as gateway:
        stopped = Stopped(gateway.parts, serving.Grace(still_serving=0.0, drain=20.0))
        client = await unread(gateway, await stopped.url())
        await answered(gateway)
        stopped.stop.set()
        async with asyncio.timeout(5):
            await stopped.drained.wait()
        stopped.task.cancel()
        client.close()


async def test_request_behind_an_answer_that_nobody_reads_is_not_kept_for_ever(monkeypatch):
    monkeypatch.setattr(connections, "UNREAD_SEC", 0.5)
    async with HostileEngine(says_much) as engine, running(engine) as gateway:
        client = await unread(gateway)
        await answered(gateway)
        await ask(client, session_id="another")
        await answered(gateway, 2)
        await reset(client)
        async with asyncio.timeout(5):
            while gateway.parts.exchanges.open:  # noqa: ASYNC110
                await asyncio.sleep(0.02)


async def test_slow_client_of_a_closed_connection_gets_everything(monkeypatch):
    """It takes something between any two looks, and the whole takes longer than one."""
    monkeypatch.setattr(connections, "CLOSED_SEC", 0.3)
    async with HostileEngine(says_much) as engine, running(engine) as gateway:
        body = json.dumps({"messages": USER}).encode()
        head = b"POST /v1/chat/completions HTTP/1.0\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
        host, port = gateway.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 16)
        writer.write(head + body)
        size = 0
        while part := await reader.read(1 << 17):
            size += len(part)
            await asyncio.sleep(0.01)
        assert size > 12_000_000
        writer.close()
