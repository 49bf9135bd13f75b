"""A stream of chat completion chunks as Anthropic's events, one by one as they come.

    chunk ─▶ message_start (once) ─▶ content_block_start · content_block_delta … · content_block_stop (each block)
    [DONE] ─▶ message_delta (stop reason, usage) ─▶ message_stop

Blocks come in the order they began, one at a time: a block ends when the next begins. Should the engine go on with a
tool call after it began something else, that waits until the call's arguments are whole, at the longest until [DONE].
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import orjson

from openclaw_gateway import sse
from openclaw_gateway.anthropic import replies
from openclaw_gateway.anthropic.replies import event

Json = dict[str, Any]
PING = event("ping", {})


@dataclass
class _Block:
    """A content block on its way."""

    start: Json
    waiting: list[Json] = field(default_factory=list)
    """Deltas that are not sent yet."""
    is_open: bool = False

    @property
    def kind(self) -> str:
        return str(self.start["type"])


@dataclass
class _Call:
    """A tool call on its way: its block begins when its name is known."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    block: _Block | None = None

    def is_whole(self) -> bool:
        if not self.arguments or not self.arguments[-1].rstrip().endswith("}"):
            return False
        try:
            orjson.loads("".join(self.arguments))
        except orjson.JSONDecodeError:
            return False
        return True


class MessageStream:
    """Feed it whole chat events in order; what it returns goes to the client at once."""

    def __init__(self) -> None:
        self._splitter = sse.EventSplitter()
        self._started = False
        self._index = 0
        """Of the first of `_blocks`."""
        self._blocks: deque[_Block] = deque()
        """The one that is open, and those that wait for its end."""
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
        if thought := delta.get("reasoning_content"):
            block = self._last({"type": "thinking", "thinking": "", "signature": ""})
            block.waiting.append({"type": "thinking_delta", "thinking": thought})
        if text := delta.get("content"):
            self._last({"type": "text", "text": ""}).waiting.append({"type": "text_delta", "text": text})
        for part in delta.get("tool_calls") or ():
            self._call(part)
        return self._send()

    def _last(self, start: Json) -> _Block:
        """The newest block, if it is of this kind; else a new one."""
        if not self._blocks or self._blocks[-1].kind != start["type"]:
            self._blocks.append(_Block(start))
        return self._blocks[-1]

    def _call(self, part: Json) -> None:
        number, function = part.get("index", len(self._calls)), part.get("function") or {}
        call = self._calls.setdefault(number, _Call())
        call.id, call.name = part.get("id") or call.id, function.get("name") or call.name
        arguments = function.get("arguments") or ""
        call.arguments.append(arguments)
        if call.block is None:
            if not call.name:
                return
            call.block = _Block({"type": "tool_use", "id": call.id, "name": call.name, "input": {}})
            self._blocks.append(call.block)
            arguments = "".join(call.arguments)
        if arguments:
            call.block.waiting.append({"type": "input_json_delta", "partial_json": arguments})

    def _send(self, *, all_said: bool = False) -> bytes:
        """What may go out now: of the open block everything, of others only once they are first."""
        out = b""
        while self._blocks:
            block = self._blocks[0]
            if not block.is_open:
                block.is_open = True
                out += event("content_block_start", {"index": self._index, "content_block": block.start})
            for delta in block.waiting:
                out += event("content_block_delta", {"index": self._index, "delta": delta})
            block.waiting.clear()
            if not all_said and (len(self._blocks) == 1 or not self._is_over(block)):
                break
            out += event("content_block_stop", {"index": self._index})
            self._blocks.popleft()
            self._index += 1
        return out

    def _is_over(self, block: _Block) -> bool:
        """Another one has begun: nothing more comes for this one, unless it is a call that is not whole."""
        return all(call.is_whole() for call in self._calls.values() if call.block is block)

    def _end(self) -> bytes:
        out = self._start({}) + self._send(all_said=True)
        out += event("message_delta", {"delta": self._stop, "usage": replies.usage(self._usage)})
        return out + event("message_stop", {})


def _says_something(chunk: Json) -> bool:
    for choice in chunk.get("choices") or ():
        delta = choice.get("delta") or {}
        if choice.get("finish_reason") or any(delta.get(key) for key in ("content", "reasoning_content", "tool_calls")):
            return True
    return False
