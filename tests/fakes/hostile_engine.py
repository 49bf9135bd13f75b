"""An engine that keeps to no rule: raw bytes on a socket, as a script says. Probes get SGLang's answers.

A script is a coroutine over a `Talk`, called for every chat; the fake engine (`tests/fakes/engine.py`) is for
behaviour that real engines have, this one for what only broken ones do.

    async def cut(talk):
        await talk.head(stream=True)
        await talk.chunk({"content": "Hel"})
        talk.abort()

    async with HostileEngine(cut) as engine: …
"""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any, Self

Json = dict[str, Any]
VERSION = "0-00000000"


class Talk:
    """One chat on one connection."""

    def __init__(self, body: Json, number: int, writer: asyncio.StreamWriter, gone: asyncio.Event) -> None:
        self.body, self.number = body, number
        self.gone = gone
        """Set when the gateway has closed its side."""
        self.keep_open = True
        """The connection serves another request after this one."""
        self.split = 0
        """Bytes per write; 0: whole."""
        self._writer = writer

    async def send(self, data: bytes) -> None:
        size = self.split or max(len(data), 1)
        for at in range(0, len(data), size):
            self._writer.write(data[at : at + size])
            await self._writer.drain()
            await asyncio.sleep(0)

    async def head(self, *, stream: bool, **headers: str) -> None:
        kind = "text/event-stream; charset=utf-8" if stream else "application/json"
        lines = {"content-type": kind, "connection": "close"} | {
            key.replace("_", "-"): val for key, val in headers.items()
        }
        self.keep_open = lines["connection"] != "close"
        text = "".join(f"{key}: {value}\r\n" for key, value in lines.items())
        self._writer.write(b"HTTP/1.1 200 OK\r\n" + text.encode() + b"\r\n")
        await self._writer.drain()

    async def event(self, payload: Json | str, end: bytes = b"\n\n") -> None:
        """`end` may be any way to end an event."""
        text = payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
        await self.send(b"data: " + text.encode() + end)

    async def chunk(self, delta: Json, end: bytes = b"\n\n", **choice: Any) -> None:
        fields = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None, "matched_stop": None} | choice
        await self.event(envelope([fields]), end)

    async def finish(self, reason: str = "stop", *, ids: list[int] | None = None, done: bool = True) -> None:
        """The rest of a well-behaved stream: finish, ids, [DONE]."""
        await self.chunk({}, finish_reason=reason)
        if ids is not None:
            await self.event(envelope([]) | {"sglext": {"input_ids": [1, 2], "output_ids": [ids]}})
        if done:
            await self.event("[DONE]")

    async def reply(self, message: Json, finish_reason: str = "stop", **headers: str) -> None:
        choice = {
            "index": 0,
            "message": {"role": "assistant"} | message,
            "logprobs": None,
            "finish_reason": finish_reason,
        }
        body = json.dumps(envelope([choice], "chat.completion") | {"usage": {}}).encode()
        await self.head(stream=False, **{"content_length": str(len(body))} | headers)
        await self.send(body)

    def abort(self) -> None:
        """Break the connection off."""
        self.keep_open = False
        self._writer.transport.abort()


def envelope(choices: list[Json], kind: str = "chat.completion.chunk") -> Json:
    return {"id": "x", "object": kind, "created": 1, "model": "policy", "choices": choices}


class HostileEngine:
    """`script` answers chats; `talks` are those begun, in order."""

    def __init__(self, script: Callable[[Talk], Awaitable[None]]) -> None:
        self._script = script
        self.talks: list[Talk] = []
        self.url = ""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=64 << 20)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; True when another may follow on the connection."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, path, _ = head.split(" ", 2)
        length = next((int(line[15:]) for line in head.split("\r\n") if line.lower().startswith("content-length:")), 0)
        body = await reader.readexactly(length)
        if method == "GET":
            answer = json.dumps({"weight_version": VERSION}).encode() if path == "/model_info" else b""
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(answer) + answer)
            return True
        gone = asyncio.Event()
        talk = Talk(json.loads(body), len(self.talks), writer, gone)
        self.talks.append(talk)
        watch = asyncio.create_task(_until_gone(reader, gone))
        try:
            await self._script(talk)
        finally:
            if talk.keep_open:
                watch.cancel()
                await asyncio.wait((watch,))
        return talk.keep_open


async def _until_gone(reader: asyncio.StreamReader, gone: asyncio.Event) -> None:
    """Nothing more is sent while a chat is answered, so whatever is read is the end."""
    with contextlib.suppress(ConnectionError):
        await reader.read(1)
    gone.set()
