"""From an engine's own numbers to a recording: ids, logprobs, versions, all equally long or none at all. Pure.

Nothing is re-tokenised and nothing is padded: whatever does not add up makes the turn untrainable (`no_ids`), never a
guess. A reply carries its version spans; a stream has the engine's version where it began and where it ended.
"""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from openclaw_core import wire
from openclaw_core.versions import VersionFormatError, WeightVersion
from openclaw_gateway.store.turns import Recording

_GARBLED = (orjson.JSONDecodeError, KeyError, IndexError, TypeError, ValueError, AttributeError)
"""What reading an engine's numbers may raise when they have another shape than they should."""


@dataclass(frozen=True)
class Answer:
    """What the client got, and the recording if it is exact."""

    message: dict[str, Any]
    finish_reason: str | None
    recording: Recording | None

    @property
    def is_empty(self) -> bool:
        said = self.message.get("content") or self.message.get("reasoning_content")
        return not (said and str(said).strip()) and not self.message.get("tool_calls")


def of_reply(reply: dict[str, Any], sampling: wire.Sampling) -> Answer:
    """A non-stream reply with `response_token_ids`, `prompt_token_ids` and `meta_info`.

    Raises KeyError, IndexError or TypeError when it is no chat completion; numbers that are garbled are no recording.
    """
    choice = reply["choices"][0]
    recording = None
    with contextlib.suppress(*_GARBLED):
        recording = _recording_of_choice(choice, reply.get("metadata") or {}, sampling)
    return Answer(dict(choice["message"]), choice.get("finish_reason"), recording)


def _recording_of_choice(choice: dict[str, Any], metadata: dict[str, Any], sampling: wire.Sampling) -> Recording | None:
    meta = choice.get("meta_info") or {}
    ids, triples = choice.get("response_token_ids"), meta.get("output_token_logprobs")
    if not isinstance(triples, list) or [triple[1] for triple in triples] != ids:
        return None
    spans = _reply_spans(metadata, meta, len(ids))
    return exact(choice.get("prompt_token_ids"), ids, [triple[0] for triple in triples], spans, sampling)


def name_version(reply: dict[str, Any], version: str | None) -> None:
    """Put the adapter that answered where the engine names its own weights, which are the base model's."""
    for choice in reply["choices"]:
        (choice.get("meta_info") or {}).pop("weight_versions", None)
    reply["metadata"] = {**(reply.get("metadata") or {}), "weight_version": version}
    reply["metadata"].pop("weight_versions", None)


def strip_reply(reply: dict[str, Any], *, keep_logprobs: bool) -> None:
    """Cut out what the gateway asked for and the client did not."""
    reply.pop("sglext", None)
    for choice in reply["choices"]:
        for name in ("response_token_ids", "prompt_token_ids", "meta_info"):
            choice.pop(name, None)
        if not keep_logprobs and "logprobs" in choice:
            choice["logprobs"] = None


class StreamRecorder:
    """Collects a stream's parts as they pass; everything is parsed once, at its end."""

    def __init__(self) -> None:
        self._events: list[bytes] = []
        self._logprobs: list[bytes] = []
        self._ids: bytes | None = None
        self._marks: list[tuple[int, str | None]] = []

    def event(self, data: bytes) -> None:
        self._events.append(data)

    def logprobs(self, value: bytes) -> None:
        """JSON of one event's `logprobs` object."""
        self._logprobs.append(value)

    def ids(self, data: bytes) -> None:
        """The event with `sglext`."""
        self._ids = data

    def version(self, version: str | None) -> None:
        """What follows is sampled by this version, as far as anybody knows."""
        if not self._marks or self._marks[-1][1] != version:
            self._marks.append((len(self._logprobs), version))

    def answer(self, end_version: str | None, sampling: wire.Sampling) -> Answer:
        """What was streamed. An event that is not JSON as a chunk should be makes the turn untrainable, no more."""
        message, finish_reason = {"role": "assistant", "content": "".join(map(str, self._events))}, None
        recording = None
        with contextlib.suppress(*_GARBLED):
            message, finish_reason = assemble([orjson.loads(event) for event in self._events])
            recording = self._recording(end_version, sampling)
        return Answer(message, finish_reason, recording)

    def _recording(self, end_version: str | None, sampling: wire.Sampling) -> Recording | None:
        contents = [orjson.loads(value).get("content") or [] for value in self._logprobs]
        logprobs = [entry.get("logprob") for content in contents for entry in content]
        sglext = orjson.loads(self._ids).get("sglext") or {} if self._ids is not None else {}
        outputs = sglext.get("output_ids") or [None]
        ids = outputs[0]
        spans = self._spans([len(content) for content in contents], end_version, len(ids or ()))
        return exact(sglext.get("input_ids"), ids, logprobs, spans, sampling)

    def _spans(self, lengths: Sequence[int], end_version: str | None, total: int) -> list[wire.Span] | None:
        """Spans from the marks; a change seen only at the end is dated to the last token."""
        starts = [(sum(lengths[:index]), version) for index, version in self._marks]
        if starts and starts[-1][1] != end_version:
            starts.append((max(total - 1, starts[-1][0]), end_version))
        if not starts or any(version is None for _, version in starts):
            return None
        ends = [start for start, _ in starts[1:]] + [total]
        spans = [(str(version), start, end) for (start, version), end in zip(starts, ends, strict=True)]
        return [wire.Span(version=v, start=start, end=end) for v, start, end in spans if start < end]


def exact(
    prompt_ids: Any, output_ids: Any, logprobs: Any, spans: list[wire.Span] | None, sampling: wire.Sampling
) -> Recording | None:
    """A recording, or None when anything is missing, of another length, not a number or of an unknown version."""
    if not (_are_ids(prompt_ids) and _are_ids(output_ids) and isinstance(logprobs, list) and spans):
        return None
    if len(logprobs) != len(output_ids) or not all(_is_logprob(value) for value in logprobs):
        return None
    covered = [(span.start, span.end) for span in spans]
    if covered[0][0] != 0 or covered[-1][1] != len(output_ids) or not all(_is_version(span.version) for span in spans):
        return None
    return Recording(prompt_ids, output_ids, logprobs, spans, sampling)


def assemble(chunks: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], str | None]:
    """The message a client puts together from a stream's chunks (choice 0), and its finish reason."""
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    calls: dict[int, dict[str, Any]] = {}
    finish_reason = None
    for chunk in chunks:
        for choice in chunk.get("choices") or ():
            if choice.get("index", 0) != 0:
                continue
            finish_reason = choice.get("finish_reason") or finish_reason
            _add_delta(message, calls, choice.get("delta") or {})
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    return message, finish_reason


def _add_delta(message: dict[str, Any], calls: dict[int, dict[str, Any]], delta: dict[str, Any]) -> None:
    for name in ("content", "reasoning_content"):
        if delta.get(name):
            message[name] = message.get(name, "") + delta[name]
    for part in delta.get("tool_calls") or ():
        call = calls.setdefault(part.get("index", len(calls)), {"type": "function", "function": {"arguments": ""}})
        function = part.get("function") or {}
        if part.get("id"):
            call["id"] = part["id"]
        if function.get("name"):
            call["function"]["name"] = function["name"]
        call["function"]["arguments"] += function.get("arguments") or ""


def _reply_spans(metadata: dict[str, Any], meta: dict[str, Any], total: int) -> list[wire.Span] | None:
    given = metadata.get("weight_versions") or meta.get("weight_versions")
    if isinstance(given, list) and given:
        return [
            wire.Span(version=str(span["version"]), start=span["start"], end=min(span["end"], total))
            for span in given
            if span["start"] < total
        ]
    version = metadata.get("weight_version") or meta.get("weight_version")
    return [wire.Span(version=str(version), start=0, end=total)] if version else None


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(item) is int for item in value)


def _is_logprob(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_version(text: str) -> bool:
    try:
        WeightVersion.parse(text)
    except VersionFormatError:
        return False
    return True
