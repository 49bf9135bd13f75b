"""Clients that cost little: one connection each, a parser in C, nothing decoded."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httptools


@dataclass(frozen=True)
class Seen:
    """One answer: seconds to its first and to its last byte, and its body's bytes."""

    status: int
    first_sec: float
    last_sec: float
    size: int
    done: bool
    """A stream ended with [DONE]."""


class Connection(asyncio.Protocol):
    """Keep-alive; one request at a time."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._waiting: asyncio.Future[Seen] | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    async def ask(self, request: bytes) -> Seen:
        self._waiting = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._sent, self._first, self._size, self._tail = time.perf_counter(), 0.0, 0, b""
        self._transport.write(request)
        return await self._waiting

    def close(self) -> None:
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        if not self._first:
            self._first = time.perf_counter()
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        self._tail = (self._tail + body)[-16:]

    def on_message_complete(self) -> None:
        now, waiting = time.perf_counter(), self._waiting
        if waiting is not None and not waiting.done():
            done = b"data: [DONE]" in self._tail
            status = self._parser.get_status_code()
            waiting.set_result(Seen(status, self._first - self._sent, now - self._sent, self._size, done))

    def connection_lost(self, error: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error or ConnectionError("the connection was closed"))


async def connect(port: int) -> Connection:
    _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
    return connection


async def closed_loop(port: int, requests: Callable[[int], bytes], many: int, clients: int) -> list[Seen]:
    """`many` requests by `clients` clients, each asking again when it has its answer."""
    numbers = iter(range(many))
    seen: list[Seen] = []

    async def client() -> None:
        connection = await connect(port)
        for number in numbers:
            seen.append(await connection.ask(requests(number)))
        connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return seen


async def open_loop(port: int, requests: Callable[[int], bytes], many: int, per_sec: float) -> list[Seen]:
    """A request every 1/per_sec seconds, however long answers take."""
    idle: list[Connection] = []

    async def one(number: int) -> Seen:
        connection = idle.pop() if idle else await connect(port)
        answer = await connection.ask(requests(number))
        idle.append(connection)
        return answer

    began = time.perf_counter()
    tasks = []
    for number in range(many):
        await asyncio.sleep(max(0.0, began + number / per_sec - time.perf_counter()))
        tasks.append(asyncio.create_task(one(number)))
    seen = list(await asyncio.gather(*tasks))
    for connection in idle:
        connection.close()
    return seen


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
