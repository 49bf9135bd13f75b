"""A request for an answer as one value: what the client wants, and what the training needs to know. Pure.

Headers beat body keys. Raises ApiError 400 naming the field; fields nobody here reads are left to the engine.
"""

from collections.abc import Mapping
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any

import msgspec
import orjson

from openclaw_core import wire
from openclaw_gateway import conversation, nesting
from openclaw_gateway.auth import fingerprint
from openclaw_gateway.errors import bad_request
from openclaw_gateway.store.schema import Untracked

_TRUE = frozenset({"1", "true", "yes", "on"})
_MAX_NAME = 256
_MAX_TOP_K = (1 << 31) - 1
_DEEPEST = 250
"""Levels of a body. orjson writes 254, and what is passed on may have a few more than what came."""
_CONSTRAINTS = ("regex", "ebnf", "structural_tag")
_MODIFIERS = frozenset(
    {"presence_penalty", "frequency_penalty", "logit_bias", "response_format", "tool_choice", "tools", *_CONSTRAINTS}
)
"""Without any of them the logits are the model's."""
OURS = ("session_id", "turn_type", "session_done")
"""Body keys that speak to the gateway; never forwarded."""


class ChatRequest(msgspec.Struct, frozen=True, dict=True):
    body: dict[str, Any]
    raw: bytes
    messages: list[dict[str, Any]]
    stream: bool
    session: str | None
    main: bool
    done: bool
    opt_out: bool
    idempotency_key: str | None
    is_retry: bool
    sampling: wire.Sampling
    repetition_penalty: float
    completion: bool = False
    """A text completion: served, never recorded."""

    @cached_property
    def outline(self) -> conversation.Outline:
        return conversation.outline(self.messages)

    @cached_property
    def body_hash(self) -> bytes:
        return blake2b(self.raw, digest_size=16).digest()

    @property
    def wants_logprobs(self) -> bool:
        return self.completion or self.body.get("logprobs") is True

    @property
    def wants_usage(self) -> bool:
        """Whether a stream's client asked for the event that counts its tokens."""
        options = self.body.get("stream_options")
        return isinstance(options, dict) and _is_true(None, options.get("include_usage"))

    @property
    def choices(self) -> int:
        """Answers a chat completion asks for."""
        n = self.body.get("n")
        return n if isinstance(n, int) else 1

    @property
    def untracked(self) -> str | None:
        """Why the turn cannot be recorded, if so."""
        if self.completion:
            return Untracked.COMPLETION
        if not self.main:
            return Untracked.SIDE
        if self.body.get("n") not in (None, 1):
            return Untracked.N
        if self.body.get("continue_final_message") or self.messages[-1].get("role") == "assistant":
            return Untracked.PREFILL
        return None

    @property
    def modified_logits(self) -> bool:
        """True when the engine samples from other logits than the model's: its logprobs are then not the policy's."""
        body = self.body
        if self.repetition_penalty == 1.0 and _MODIFIERS.isdisjoint(body):
            return False
        if any(body.get(name) for name in ("presence_penalty", "frequency_penalty", "logit_bias")):
            return True
        if self.repetition_penalty != 1.0 or any(body.get(name) is not None for name in _CONSTRAINTS):
            return True
        format_ = body.get("response_format")
        if isinstance(format_, dict) and format_.get("type") not in (None, "text"):
            return True
        if body.get("tool_choice") not in (None, "none", "auto"):
            return True
        tools = body.get("tools")
        return isinstance(tools, list) and any(_strict(tool) for tool in tools if isinstance(tool, dict))

    def hints(self) -> dict[str, str]:
        """Fingerprints of what may tell two users apart; they narrow a session match and never make one."""
        metadata = self.body.get("metadata")
        values = {
            "user": self.body.get("user"),
            "cache": self.body.get("prompt_cache_key"),
            "meta": metadata.get("user_id") if isinstance(metadata, dict) else None,
        }
        return {key: fingerprint(value)[:16] for key, value in values.items() if isinstance(value, str) and value}


def retries_of(headers: Mapping[str, str]) -> int:
    """How often an official client sent this request before; 0 of any other."""
    told = headers.get("x-stainless-retry-count", "")
    return int(told) if told.isascii() and told.isdigit() and len(told) < 10 else 0


def parse(headers: Mapping[str, str], raw: bytes, *, default_main: bool) -> ChatRequest:
    return of_body(headers, json_object(raw), raw, default_main=default_main)


def parse_completion(headers: Mapping[str, str], raw: bytes, *, default_main: bool) -> ChatRequest:
    """A text completion: a prompt instead of messages."""
    body = json_object(raw)
    if not isinstance(body.get("prompt"), str | list) or not body["prompt"]:
        raise bad_request("prompt", "prompt must be a string, a list of strings or a list of token ids")
    return _request(headers, body, raw, [], default_main=default_main, completion=True)


def of_body(headers: Mapping[str, str], body: dict[str, Any], raw: bytes, *, default_main: bool) -> ChatRequest:
    """`body` is a chat completion, `raw` what the client sent to mean it: a retry repeats those bytes."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise bad_request("messages", "messages must be a non-empty list")
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise bad_request(f"messages[{index}]", f"messages[{index}] must be an object with a role")
    n = body.get("n")
    if n is not None and not (isinstance(n, int) and n >= 1):
        raise bad_request("n", f"n is {n!r}; it must be a whole number of at least 1")
    return _request(headers, body, raw, messages, default_main=default_main)


def _request(
    headers: Mapping[str, str],
    body: dict[str, Any],
    raw: bytes,
    messages: list[dict[str, Any]],
    *,
    default_main: bool,
    completion: bool = False,
) -> ChatRequest:
    stream = body.get("stream", False)
    if not isinstance(stream, bool | None):
        raise bad_request("stream", "stream must be true or false")
    return ChatRequest(
        body=body,
        raw=raw,
        messages=messages,
        stream=bool(stream),
        session=_name(headers.get("x-session-id"), body.get("session_id")),
        main=_is_main(headers.get("x-turn-type"), body.get("turn_type"), default_main=default_main),
        done=_is_true(headers.get("x-session-done"), body.get("session_done")),
        opt_out=_is_true(headers.get("x-openclaw-no-train"), None),
        idempotency_key=(headers.get("idempotency-key") or "")[:_MAX_NAME] or None,
        is_retry=retries_of(headers) >= 1,
        sampling=_sampling(body),
        repetition_penalty=_number(body, "repetition_penalty", 1.0),
        completion=completion,
    )


def json_object(raw: bytes) -> dict[str, Any]:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise bad_request(None, f"the body is not JSON: {error}", code="invalid_json") from error
    if not isinstance(body, dict):
        raise bad_request(None, "the body must be a JSON object", code="invalid_json")
    if nesting.is_too_deep(raw, body, below=nesting.LEVELS_WRITTEN - _DEEPEST):
        raise bad_request(None, f"the body is nested too deeply; {_DEEPEST} levels are the most", code="invalid_json")
    return body


def _name(header: str | None, key: Any) -> str | None:
    name = header if header else key
    if name is None or name == "":
        return None
    if not isinstance(name, str) or len(name) > _MAX_NAME or "\0" in name:
        raise bad_request("session_id", f"X-Session-Id must be a string of at most {_MAX_NAME} characters, none NUL")
    return name


def _is_main(header: str | None, key: Any, *, default_main: bool) -> bool:
    kind = header if header else key
    if kind is None or kind == "":
        return default_main
    word = kind.strip().lower() if isinstance(kind, str) else None
    if word not in ("main", "side"):
        raise bad_request("turn_type", "X-Turn-Type must be main or side")
    return word == "main"


def _is_true(header: str | None, key: Any) -> bool:
    if header is not None:
        return header.strip().lower() in _TRUE
    return key is True or (isinstance(key, str | int) and str(key).strip().lower() in _TRUE)


def _sampling(body: Mapping[str, Any]) -> wire.Sampling:
    return _sampling_of(
        _number(body, "temperature", 1.0),
        _number(body, "top_p", 1.0),
        _top_k(body),
        _number(body, "min_p", 0.0),
    )


def _top_k(body: Mapping[str, Any]) -> int:
    value = _number(body, "top_k", -1)
    if not -1 <= value <= _MAX_TOP_K:
        raise bad_request("top_k", f"top_k is {value:g}; it must be from 1 to {_MAX_TOP_K}, or -1 for no limit")
    return int(value)


@lru_cache(maxsize=256)
def _sampling_of(temperature: float, top_p: float, top_k: int, min_p: float) -> wire.Sampling:
    """Clients send the same few over and over."""
    return wire.Sampling(temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p)


def _number(body: Mapping[str, Any], field: str, default: float) -> float:
    value = body.get(field)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise bad_request(field, f"{field} must be a number")
    return float(value)


def _strict(tool: Mapping[str, Any]) -> bool:
    function = tool.get("function")
    return isinstance(function, dict) and function.get("strict") is True
