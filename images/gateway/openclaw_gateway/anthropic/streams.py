"""A stream of chat completion chunks as Anthropic's events, one by one as they come.

    chunk ─▶ message_start (once) ─▶ content_block_start · content_block_delta … · content_block_stop (each block)
    [DONE] ─▶ message_delta (stop reason, usage) ─▶ message_stop

Blocks come in the order they began; a block ends when the next begins.
"""

from dataclasses import dataclass
from typing import Any

import orjson

from openclaw_gateway import sse
from openclaw_gateway.anthropic import replies
from openclaw_gateway.anthropic.replies import event

Json = dict[str, Any]
PING = event("ping", {})


@dataclass
class _Call:
    """A tool call on its way: its block begins when its name is known."""

    id: str = ""
    name: str = ""
    early: str = ""
    index: int | None = None


class MessageStream:
    """Feed it whole chat events in order; what it returns goes to the client at once."""

    def __init__(self) -> None:
        self._splitter = sse.EventSplitter()
        self._started = False
        self._index = -1
        self._open: str | None = None
        """Kind of the block that is open: text, thinking, or the call's number."""
        self._calls: dict[int, _Call] = {}
        self._stop: Json = {"stop_reason": "end_turn", "stop_sequence": None}
        self._usage: Json = {}

    def feed(self, chunk: bytes) -> bytes:
        return b"".join(self._one(sse.data(part)) for part in self._splitter.feed(chunk))

    def failure(self, frame: bytes) -> bytes:
        return replies.error_event(frame)

    def _one(self, data: bytes) -> bytes:
        if not data:
            return b""  # a comment
        if data == sse.DONE:
            return self._end()
        try:
            chunk = orjson.loads(data)
        except orjson.JSONDecodeError:
            return b""
        return self._chunk(chunk) if isinstance(chunk, dict) else b""

    def _chunk(self, chunk: Json) -> bytes:
        self._usage = chunk.get("usage") or self._usage
        if not self._started and not self._usage and not _says_something(chunk):
            return b""  # the engine's opening chunk: how long the prompt is comes with the next one
        out = self._start(chunk)
        for choice in chunk.get("choices") or ():
            out += self._delta(choice.get("delta") or {})
            if choice.get("finish_reason"):
                self._stop = replies.stop(choice["finish_reason"], choice.get("matched_stop"))
        return out

    def _start(self, chunk: Json) -> bytes:
        if self._started:
            return b""
        self._started = True
        message: Json = {
            "id": replies.message_id(chunk.get("id")),
            "type": "message",
            "role": "assistant",
            "model": chunk.get("model"),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": replies.usage(self._usage),
        }
        return event("message_start", {"message": message})

    def _delta(self, delta: Json) -> bytes:
        out = b""
        if thought := delta.get("reasoning_content"):
            out += self._begin("thinking", {"type": "thinking", "thinking": "", "signature": ""})
            out += self._add(self._index, {"type": "thinking_delta", "thinking": thought})
        if text := delta.get("content"):
            out += self._begin("text", {"type": "text", "text": ""})
            out += self._add(self._index, {"type": "text_delta", "text": text})
        for part in delta.get("tool_calls") or ():
            out += self._call(part)
        return out

    def _call(self, part: Json) -> bytes:
        number, function = part.get("index", len(self._calls)), part.get("function") or {}
        call = self._calls.setdefault(number, _Call())
        call.id, call.name = part.get("id") or call.id, function.get("name") or call.name
        arguments = function.get("arguments") or ""
        out = b""
        if call.index is None:
            if not call.name:
                call.early += arguments
                return b""
            block: Json = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
            out = self._begin(f"call {number}", block)
            call.index, arguments = self._index, call.early + arguments
        if arguments:
            out += self._add(call.index, {"type": "input_json_delta", "partial_json": arguments})
        return out

    def _begin(self, kind: str, block: Json) -> bytes:
        if self._open == kind:
            return b""
        out = self._close()
        self._open, self._index = kind, self._index + 1
        return out + event("content_block_start", {"index": self._index, "content_block": block})

    def _add(self, index: int, delta: Json) -> bytes:
        return event("content_block_delta", {"index": index, "delta": delta})

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        return event("content_block_stop", {"index": self._index})

    def _end(self) -> bytes:
        out = self._start({}) + self._close()
        out += event("message_delta", {"delta": self._stop, "usage": replies.usage(self._usage)})
        return out + event("message_stop", {})


def _says_something(chunk: Json) -> bool:
    for choice in chunk.get("choices") or ():
        delta = choice.get("delta") or {}
        if choice.get("finish_reason") or any(delta.get(key) for key in ("content", "reasoning_content", "tool_calls")):
            return True
    return False
