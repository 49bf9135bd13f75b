"""The few lines of ASGI the hot route needs: headers, a bounded body, an answer, the client's going."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from typing import Any, Protocol, TypeVar

import orjson

from openclaw_gateway import errors, identifiers

T = TypeVar("T")
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
MAX_BODY_BYTES = 64 << 20
BODY_PART_SEC = 30.0
"""A client that sends nothing more of its body for this long is answered 408."""
BODY_BYTES_PER_SEC = 8 << 10
"""The whole body may take `BODY_PART_SEC`, and as long on top as its size takes at this rate."""

CLIENT = "openclaw.client"
"""Key of a scope: what our own server tells beside ASGI."""


class Client(Protocol):
    """The client of one request."""

    said_all: bool
    """The whole body is here."""

    def watch(self, gone: Callable[[], None]) -> None:
        """Call `gone` when it closes its connection, at once if it has."""

    def end(self) -> None:
        """No more."""

    def takes(self) -> bool:
        """A streamed answer has begun and the client keeps up with it: `write` may be used."""

    def write(self, data: bytes) -> None:
        """More of the body at once, without ASGI's coroutines."""

    def reads(self) -> bool:
        """Nothing of an answer has begun and the client keeps up: `answer` may be used."""

    def answer(self, headers: Mapping[str, str], data: bytes) -> None:
        """All of a 200 at once: head and body in one packet, where ASGI's two messages are two."""

    def abort(self) -> None:
        """Cut its connection off; what it has not read is lost."""


class AnyClient:
    """The same by ASGI alone, for a server that is not ours."""

    said_all = False

    def __init__(self, receive: "Receive") -> None:
        self._receive = receive
        self._task: asyncio.Task[None] | None = None

    def watch(self, gone: Callable[[], None]) -> None:
        self._task = asyncio.create_task(self._wait(gone))

    async def _wait(self, gone: Callable[[], None]) -> None:
        await until_gone(self._receive)
        gone()

    def end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def takes(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        raise NotImplementedError("ASGI has no such thing")

    def reads(self) -> bool:
        return False

    def answer(self, headers: Mapping[str, str], data: bytes) -> None:
        raise NotImplementedError("ASGI has no such thing")

    def abort(self) -> None:
        """A server that is not ours has bounds of its own."""


def client_of(scope: "Scope", receive: "Receive") -> Client:
    """The body must have been read before it is watched."""
    found: Client | None = scope.get(CLIENT)
    return found if found is not None else AnyClient(receive)


class ClientGoneError(Exception):
    """The client closed its connection."""


def headers_of(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def request_id(headers: Mapping[str, str]) -> str:
    """The client's own x-request-id if a header may carry it back, else a new one."""
    given = headers.get("x-request-id", "")
    return given if given and len(given) <= 128 and given.isascii() and given.isprintable() else identifiers.draw()


async def read_body(receive: Receive, client: Client | None = None) -> bytes:
    """Raises ApiError 413 beyond the limit, 408 when it comes too slowly, ClientGoneError when the client leaves."""
    parts: list[bytes] = []
    size, since = 0, asyncio.get_running_loop().time()
    while True:
        due = since + BODY_PART_SEC + size / BODY_BYTES_PER_SEC
        message = await (receive() if client is not None and client.said_all else _next_part(receive, due))
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        part = message.get("body", b"")
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise errors.bad_request(None, f"the body is larger than {MAX_BODY_BYTES >> 20} MiB", status=413)
        parts.append(part)
        if not message.get("more_body"):
            return parts[0] if len(parts) == 1 else b"".join(parts)


async def _next_part(receive: Receive, due: float) -> MutableMapping[str, Any]:
    try:
        async with asyncio.timeout_at(min(due, asyncio.get_running_loop().time() + BODY_PART_SEC)):
            return await receive()
    except TimeoutError as error:
        least = f"{BODY_BYTES_PER_SEC >> 10} KiB a second"
        message = f"the body came too slowly: nothing for {BODY_PART_SEC:.0f} s, or less than {least}"
        raise errors.bad_request(None, message, status=408, code="body_timeout") from error


async def until_gone(receive: Receive) -> None:
    """Returns when the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which ends with the client: ClientGoneError. The body must have been read."""
    working, watching = asyncio.ensure_future(work), asyncio.ensure_future(until_gone(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGoneError
        return await working
    finally:
        for task in (working, watching):
            task.cancel()


async def start(send: Send, status: int, headers: Mapping[str, str]) -> None:
    raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})


async def body(send: Send, data: bytes, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})


async def json_answer(send: Send, status: int, payload: Any, headers: Mapping[str, str]) -> None:
    data = payload if isinstance(payload, bytes) else orjson.dumps(payload)
    await start(send, status, {"content-type": "application/json", "content-length": str(len(data))} | dict(headers))
    await body(send, data, more=False)
