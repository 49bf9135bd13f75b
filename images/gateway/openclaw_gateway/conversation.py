"""Which conversation a request continues, told from its messages alone.

A *chain* is a running hash over normalised messages: turn k's chain covers its prompt and its answer, so a request
whose messages start with both has that chain at one of its assistant messages. Normalised: role, text, names and
arguments of tool calls; clients may send `null` for `""`, one text part for a string, or drop the reasoning.

A *passage* is the same over a piece of it: whoever drops older messages, or writes the date into the system prompt,
still quotes that.
"""

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from hashlib import blake2b
from typing import Any

import msgspec
import orjson

Message = Mapping[str, Any]
START = b""
_DIGEST_BYTES = 16
_SYSTEM = ("system", "developer")


class Prefix(msgspec.Struct, frozen=True):
    """The first `length` messages of a request, ending in an assistant message, and their chain."""

    length: int
    chain: bytes


class Outline(msgspec.Struct, frozen=True):
    """A request's messages as chains."""

    prefixes: tuple[Prefix, ...]
    """Longest first."""
    chain: bytes
    """Over all messages."""
    tail_start: int
    """Index after the last assistant message; 0 without one."""
    tail: bytes
    """Chain of the messages from `tail_start` on."""


class Kind(Enum):
    """Where a passage ends, and so where it begins."""

    OPENING = "opening"
    """At something said before any answer; from the first message."""
    SAID = "said"
    """At something said later; from the answer before."""
    ANSWERED = "answered"
    """At an answer; after the one before."""


class Passage(msgspec.Struct, frozen=True):
    kind: Kind
    chain: bytes


def extend(chain: bytes, message: Message) -> bytes:
    """Chain of the messages before plus `message`."""
    return _extend(chain, _normalised(message))


def _extend(chain: bytes, normalised: bytes) -> bytes:
    return blake2b(chain + normalised, digest_size=_DIGEST_BYTES).digest()


def outline(messages: Sequence[Message]) -> Outline:
    prefixes: list[Prefix] = []
    chain, tail, tail_start = START, START, 0
    for index, message in enumerate(messages):
        normalised = _normalised(message)
        chain = _extend(chain, normalised)
        if message.get("role") == "assistant":
            prefixes.append(Prefix(index + 1, chain))
            tail, tail_start = START, index + 1
        else:
            # Without an answer so far the tail is the whole.
            tail = _extend(tail, normalised) if tail_start else chain
    return Outline(tuple(reversed(prefixes)), chain, tail_start, tail)


def passages(messages: Sequence[Message]) -> Iterator[Passage]:
    """One for each message, but the system's, which are in none.

    A greeting, which the application puts before what anybody says, is part of the opening.
    """
    said = after = START
    answered = spoken = False
    for message in messages:
        role, normalised = message.get("role"), _normalised(message)
        if role in _SYSTEM:
            continue
        said, after = _extend(said, normalised), _extend(after, normalised)
        if role != "assistant":
            spoken = True
            yield Passage(Kind.SAID, after) if answered else Passage(Kind.OPENING, said)
        elif spoken:
            answered = True
            yield Passage(Kind.ANSWERED, said)
            said, after = START, _extend(START, normalised)


def exchange(messages: Sequence[Message], answer: Message) -> bytes:
    """Chain of the passage that `answer` ends; it goes on where the client began it."""
    said, words = list(messages), text(answer.get("content"))
    while said and said[-1].get("role") == "assistant":
        words = text(said.pop().get("content")) + words
    whole = {**answer, "content": words}
    last = deque(passages([*said, whole]), 1)
    return last[0].chain if last else extend(START, whole)


def next_state(messages: Sequence[Message], start: int) -> list[Message]:
    """Messages from `start` on, without a trailing assistant message (the client asks to continue it)."""
    rest = list(messages[start:])
    while rest and rest[-1].get("role") == "assistant":
        rest.pop()
    return rest


def _normalised(message: Message) -> bytes:
    role = message.get("role")
    parts = ["system" if role == "developer" else str(role), text(message.get("content")).strip()]
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            parts += [str(function.get("name")), _arguments(function.get("arguments"))]
    try:
        return orjson.dumps(parts, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # half a surrogate pair, which arguments of tool calls may spell
        return json.dumps(parts).encode() + b"\n"


def text(content: Any) -> str:
    """Text of a message's content; parts other than text count as their JSON."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_part(part) for part in content)
    return json.dumps(content, sort_keys=True)


def _part(part: Any) -> str:
    if isinstance(part, Mapping) and isinstance(part.get("text"), str):
        return str(part["text"])
    return part if isinstance(part, str) else json.dumps(part, sort_keys=True)


def _arguments(arguments: Any) -> str:
    try:
        read = json.loads(arguments) if isinstance(arguments, str) else arguments
        return json.dumps(read, sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):  # words of the model, or of whoever claims it said them
        return str(arguments)
