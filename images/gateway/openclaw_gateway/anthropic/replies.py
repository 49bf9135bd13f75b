"""A chat completion as the Messages reply it means, and errors in Anthropic's shape. Pure."""

from collections.abc import Mapping
from typing import Any

import orjson

from openclaw_gateway import nesting
from openclaw_gateway.errors import ApiError

Json = dict[str, Any]
_STOP_REASONS = {"length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
UNPARSED = "unparsed_arguments"
"""Input of a tool call whose arguments are not a JSON object, or too deep a one: the words as the model gave them."""


def message(reply: Mapping[str, Any]) -> Json:
    """The `message` object of a non-stream reply. Raises KeyError, IndexError, TypeError for another shape."""
    choice = reply["choices"][0]
    return {
        "id": message_id(reply.get("id")),
        "type": "message",
        "role": "assistant",
        "model": reply.get("model"),
        "content": _content(choice["message"]),
        **stop(choice.get("finish_reason"), choice.get("matched_stop")),
        "usage": usage(reply.get("usage") or {}),
    }


def message_id(id_: Any) -> str:
    return f"msg_{id_}"


def stop(finish_reason: Any, matched: Any) -> Json:
    """`stop_reason` and `stop_sequence`: the engine names the stop string it met, or the id of its end token."""
    if finish_reason == "stop" and isinstance(matched, str):
        return {"stop_reason": "stop_sequence", "stop_sequence": matched}
    return {"stop_reason": _STOP_REASONS.get(finish_reason, "end_turn"), "stop_sequence": None}


def usage(given: Mapping[str, Any]) -> Json:
    """Anthropic counts cached prompt tokens beside the others, not among them."""
    cached = (given.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return {
        "input_tokens": max(0, (given.get("prompt_tokens") or 0) - cached),
        "output_tokens": given.get("completion_tokens") or 0,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0,
    }


def error_body(error: ApiError, request_id: str | None) -> Json:
    return _error(error.status, error.message, error.code) | ({"request_id": request_id} if request_id else {})


def error_event(frame: bytes) -> bytes:
    """The error frame of a chat stream as Anthropic's `error` event."""
    try:
        error = orjson.loads(frame.removeprefix(b"data:").strip())["error"]
        body = _error(500, str(error["message"]), error.get("code"))
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        body = _error(500, "the engine failed", None)
    return event("error", body)


def event(kind: str, body: Json) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + orjson.dumps({"type": kind} | body) + b"\n\n"


def _error(status: int, text: str, code: Any) -> Json:
    kind = _ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": text, "code": code}}


def _content(said: Mapping[str, Any]) -> list[Json]:
    blocks: list[Json] = []
    if said.get("reasoning_content"):
        blocks.append({"type": "thinking", "thinking": said["reasoning_content"], "signature": ""})
    if said.get("content"):
        blocks.append({"type": "text", "text": said["content"]})
    for call in said.get("tool_calls") or ():
        function = call["function"]
        blocks.append(
            {
                "type": "tool_use",
                "id": call["id"],
                "name": function["name"],
                "input": _input(function.get("arguments") or "{}"),
            }
        )
    return blocks


def _input(arguments: str) -> Json:
    try:
        parsed = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        parsed = None
    if isinstance(parsed, dict) and not nesting.is_too_deep(arguments.encode(), parsed, below=6):
        return parsed
    return {UNPARSED: arguments}
