"""An engine's whole reply, of which only what is needed is read: log probabilities of each token are most of it, and
nearly all of that is cut out again. What the client gets is the engine's own bytes, value by value."""

import contextlib
from typing import Annotated, Any, TypeAlias

import msgspec
import orjson

from openclaw_core import wire
from openclaw_gateway import recording
from openclaw_gateway.recording import Answer
from openclaw_gateway.store.turns import Recording

NO_REPLY = (msgspec.MsgspecError, orjson.JSONDecodeError, KeyError, IndexError, TypeError, AttributeError)
"""What reading a reply may raise when it is no completion at all."""
_OURS = ("response_token_ids", "prompt_token_ids", "meta_info")
_NULL = msgspec.Raw(b"null")
_LOGPROBS = b'"logprobs":{'
_AFTER_LOGPROBS = b'},"finish_reason":'


class _Sampled(msgspec.Struct, array_like=True, gc=False):
    """`[logprob, id, text]` of a token."""

    logprob: float
    id: int


class _Meta(msgspec.Struct, gc=False):
    """The part of `meta_info` that is recorded; anything of another shape is no recording."""

    output_token_logprobs: list[_Sampled] | None = None
    weight_version: Any = None
    weight_versions: Any = None


_Many: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class Usage(msgspec.Struct, gc=False):
    """Tokens, as the engine counted them."""

    prompt_tokens: _Many = 0
    completion_tokens: _Many = 0


_parts = msgspec.json.Decoder(dict[str, msgspec.Raw])
_choices = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_ids = msgspec.json.Decoder(recording.TokenIds)
_meta = msgspec.json.Decoder(_Meta | None)
_usage = msgspec.json.Decoder(Usage | None)
_encode = msgspec.json.Encoder().encode


class Reply:
    """Raises one of NO_REPLY when the payload is not a completion."""

    def __init__(self, payload: bytes, *, keep_logprobs: bool) -> None:
        self._keeps_logprobs = keep_logprobs
        self._parts = _parts.decode(payload if keep_logprobs else _without_logprobs(payload))
        self._choices = _choices.decode(self._parts["choices"])
        self._is_named = False

    @property
    def is_aborted(self) -> bool:
        return any(bytes(choice.get("finish_reason", b"")) == b'"abort"' for choice in self._choices)

    @property
    def usage(self) -> Usage:
        try:
            return _usage.decode(self._parts.get("usage", b"null")) or Usage()
        except msgspec.MsgspecError:
            return Usage()

    def name_version(self, version: str | None) -> None:
        """Put the adapter that answered where the engine names its own weights, which are the base model's."""
        metadata = {**(_read(self._parts.get("metadata")) or {}), "weight_version": version}
        metadata.pop("weight_versions", None)
        self._parts["metadata"] = msgspec.Raw(_encode(metadata))
        self._is_named = True

    def answer(self, sampling: wire.Sampling) -> Answer:
        choice = self._choices[0]
        message = dict(_read(choice["message"]))
        exact = None
        with contextlib.suppress(msgspec.MsgspecError, *recording.GARBLED):
            exact = self._recording(choice, sampling)
        others = [dict(_read(other["message"])) for other in self._choices[1:]]
        return Answer(message, _read(choice.get("finish_reason")), exact, others)

    def stripped(self) -> bytes:
        """The reply without what the gateway asked for and the client did not."""
        self._parts.pop("sglext", None)
        for choice in self._choices:
            for name in _OURS:
                choice.pop(name, None)
            if not self._keeps_logprobs and "logprobs" in choice:
                choice["logprobs"] = _NULL
        self._parts["choices"] = msgspec.Raw(_encode(self._choices))
        return _encode(self._parts)

    def _recording(self, choice: dict[str, msgspec.Raw], sampling: wire.Sampling) -> Recording | None:
        meta = _meta.decode(choice.get("meta_info", b"null")) or _Meta()
        ids = _ids.decode(choice["response_token_ids"])
        sampled = meta.output_token_logprobs
        if sampled is None or [token.id for token in sampled] != ids:
            return None
        metadata = _read(self._parts.get("metadata")) or {}
        given = metadata.get("weight_versions") or (None if self._is_named else meta.weight_versions)
        alone = metadata.get("weight_version") or meta.weight_version
        spans = recording.reply_spans(given, alone, len(ids))
        prompt_ids = _ids.decode(choice["prompt_token_ids"])
        return recording.exact(prompt_ids, ids, [token.logprob for token in sampled], spans, sampling)


def _without_logprobs(payload: bytes) -> bytes:
    """Without the value of the one choice's `logprobs`, most of a reply, where it is as SGLang writes it.

    A key between quotes cannot occur inside a JSON string: its quotes would be escaped there.
    """
    start = payload.find(_LOGPROBS)
    end = payload.find(_AFTER_LOGPROBS, start)
    if start < 0 or end < 0 or payload.find(_LOGPROBS, end) >= 0:
        return payload
    return b"%bnull%b" % (payload[: start + len(_LOGPROBS) - 1], payload[end + 1 :])


def _read(raw: msgspec.Raw | None) -> Any:
    return None if raw is None else orjson.loads(memoryview(raw))
