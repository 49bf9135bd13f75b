"""From an engine's own numbers to a recording: ids, logprobs, versions, all equally long or none at all. Pure.

Nothing is re-tokenised and nothing is padded: whatever does not add up makes the turn untrainable (`no_ids`), never a
guess. A reply carries its version spans; a stream has the engine's version where it began and where it ended.
"""

import contextlib
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any, TypeAlias

import msgspec
import orjson

from openclaw_core import wire
from openclaw_core.versions import VersionFormatError, WeightVersion
from openclaw_gateway.store.turns import Recording, Span

GARBLED = (msgspec.MsgspecError, orjson.JSONDecodeError, KeyError, IndexError, TypeError, ValueError, AttributeError)
"""What reading an engine's numbers may raise when they have another shape than they should."""


class _Logprob(msgspec.Struct, gc=False):
    logprob: float


class _Logprobs(msgspec.Struct, gc=False):
    content: list[_Logprob] | None = None


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


class _Choice(msgspec.Struct, gc=False):
    index: int = 0
    delta: _Delta | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Chunk(msgspec.Struct, gc=False):
    """What is read of an event; everything else in it is skipped unread."""

    choices: tuple[_Choice, ...] | None = ()


TokenIds: TypeAlias = list[Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]]
"""As the store keeps them."""


class _Sglext(msgspec.Struct, gc=False):
    input_ids: TokenIds = []
    output_ids: list[TokenIds] = []


class _Ids(msgspec.Struct, gc=False):
    """The event with the ids of a stream."""

    sglext: _Sglext


_chunks = msgspec.json.Decoder(list[_Chunk])
_ids = msgspec.json.Decoder(_Ids)


class Answer(msgspec.Struct, frozen=True):
    """What the client got, and the recording if it is exact."""

    message: dict[str, Any]
    finish_reason: str | None
    recording: Recording | None
    others: Sequence[dict[str, Any]] = ()
    """Messages of the other choices."""

    @property
    def is_empty(self) -> bool:
        said = self.message.get("content") or self.message.get("reasoning_content")
        return not (said and str(said).strip()) and not self.message.get("tool_calls")


class StreamRecorder:
    """Collects a stream's parts as they pass; everything is parsed once, at its end."""

    def __init__(self) -> None:
        self._events: list[bytes] = []
        self._ids: bytes | None = None
        self._marks: list[tuple[int, str | None]] = []
        self.event = self._events.append
        """Take one event's JSON, as the engine sent it."""

    def ids(self, data: bytes) -> None:
        """The event with `sglext`."""
        self._ids = data

    def version(self, version: str | None) -> None:
        """What follows is sampled by this version, as far as anybody knows."""
        if not self._marks or self._marks[-1][1] != version:
            self._marks.append((len(self._events), version))

    def answer(self, end_version: str | None, sampling: wire.Sampling) -> Answer:
        """What was streamed. An event that is not JSON as a chunk should be makes the turn untrainable, no more."""
        message, finish_reason = {"role": "assistant", "content": "".join(map(str, self._events))}, None
        recording, others = None, []
        with contextlib.suppress(*GARBLED):
            chunks = _chunks.decode(b"[" + b",".join(self._events) + b"]")
            message, finish_reason = assemble(chunks)
            others = [assemble(chunks, index)[0] for index in _others(chunks)]
            recording = self._recording(chunks, end_version, sampling)
        return Answer(message, finish_reason, recording, others)

    def _recording(
        self, chunks: Sequence[_Chunk], end_version: str | None, sampling: wire.Sampling
    ) -> Recording | None:
        contents = [_logprobs(chunk) for chunk in chunks]
        logprobs = [entry.logprob for content in contents for entry in content]
        sglext = _ids.decode(self._ids).sglext if self._ids is not None else _Sglext()
        ids = sglext.output_ids[0] if sglext.output_ids else []
        spans = self._spans([len(content) for content in contents], end_version, len(ids))
        return exact(sglext.input_ids, ids, logprobs, spans, sampling)

    def _spans(self, lengths: Sequence[int], end_version: str | None, total: int) -> list[Span] | None:
        """Spans from the marks; a change seen only at the end is dated to the last token."""
        starts = [(sum(lengths[:index]), version) for index, version in self._marks]
        if starts and starts[-1][1] != end_version:
            starts.append((max(total - 1, starts[-1][0]), end_version))
        if not starts or any(version is None for _, version in starts):
            return None
        ends = [start for start, _ in starts[1:]] + [total]
        spans = [(str(version), start, end) for (start, version), end in zip(starts, ends, strict=True)]
        return [Span(version, start, end) for version, start, end in spans if start < end]


def exact(
    prompt_ids: list[int],
    output_ids: list[int],
    logprobs: list[float],
    spans: list[Span] | None,
    sampling: wire.Sampling,
) -> Recording | None:
    """A recording, or None when anything is missing, of another length, not finite or of an unknown version."""
    if not (prompt_ids and output_ids and spans):
        return None
    if len(logprobs) != len(output_ids) or not _are_finite(logprobs):
        return None
    covered = [(span.start, span.end) for span in spans]
    if covered[0][0] != 0 or covered[-1][1] != len(output_ids) or not all(_is_version(span.version) for span in spans):
        return None
    return Recording(prompt_ids, output_ids, logprobs, spans, sampling)


def assemble(chunks: Sequence[_Chunk], index: int = 0) -> tuple[dict[str, Any], str | None]:
    """The message a client puts together from a stream's chunks (of one choice), and its finish reason."""
    message: dict[str, Any] = {"role": "assistant"}
    said: dict[str, list[str]] = {"content": [], "reasoning_content": []}
    calls: dict[int, dict[str, Any]] = {}
    finish_reason = None
    for chunk in chunks:
        for choice in chunk.choices or ():
            if choice.index != index:
                continue
            finish_reason = choice.finish_reason or finish_reason
            if choice.delta is not None:
                _add_delta(said, calls, choice.delta)
    message["content"] = "".join(said["content"])
    if said["reasoning_content"]:
        message["reasoning_content"] = "".join(said["reasoning_content"])
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    return message, finish_reason


def _others(chunks: Sequence[_Chunk]) -> list[int]:
    return sorted({choice.index for chunk in chunks for choice in chunk.choices or () if choice.index})


def _add_delta(said: dict[str, list[str]], calls: dict[int, dict[str, Any]], delta: _Delta) -> None:
    if delta.content:
        said["content"].append(delta.content)
    if delta.reasoning_content:
        said["reasoning_content"].append(delta.reasoning_content)
    for part in delta.tool_calls or ():
        call = calls.setdefault(part.get("index", len(calls)), {"type": "function", "function": {"arguments": ""}})
        function = part.get("function") or {}
        if part.get("id"):
            call["id"] = part["id"]
        if function.get("name"):
            call["function"]["name"] = function["name"]
        call["function"]["arguments"] += function.get("arguments") or ""


def _logprobs(chunk: _Chunk) -> Sequence[_Logprob]:
    """Of choice 0, which SGLang sends alone in a chunk."""
    for choice in chunk.choices or ():
        if choice.logprobs is not None and choice.index == 0:
            return choice.logprobs.content or ()
    return ()


def reply_spans(given: Any, alone: Any, total: int) -> list[Span] | None:
    """From `weight_versions`, else from the one `weight_version`."""
    if isinstance(given, list) and given:
        said = msgspec.convert(given, list[Span])
        return [Span(span.version, span.start, min(span.end, total)) for span in said if span.start < total]
    return [Span(version=str(alone), start=0, end=total)] if alone else None


def _are_finite(values: Sequence[float]) -> bool:
    return math.isfinite(sum(values)) or all(map(math.isfinite, values))


@lru_cache(maxsize=64)
def _is_version(text: str) -> bool:
    try:
        WeightVersion.parse(text)
    except VersionFormatError:
        return False
    return True
