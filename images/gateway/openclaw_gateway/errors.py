"""Errors as OpenAI clients read them: `{"error": {message, type, param, code}}` with a status and headers.

openai-python retries 408, 409, 429 and 5xx twice and honours Retry-After up to 120 s; a permanent refusal therefore
uses another status.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

import orjson

LONGEST_RETRY_AFTER_SEC = 120
"""openai-python waits for no longer Retry-After."""
NEVER_SENT = frozenset({"paused", "submission_held", "engines_busy"})
"""Codes of a 503 that no engine has seen the request of."""
PAUSED_MESSAGE = "submission paused for weight update"
ENDPOINTS = (
    "POST /v1/chat/completions, POST /v1/messages, POST /v1/messages/count_tokens, POST /v1/completions, "
    "GET /v1/models, GET /v1/models/{id}"
)


_WHERE_IN_ITS_SOURCE = re.compile(r"\n\s*File \"|Traceback \(most recent call last\)")
"""FastAPI ends what it says of a bad body with the place in the engine's source; no client needs that."""


class ApiError(Exception):
    """One refusal. `retry_after_sec` becomes a Retry-After header, in whole seconds; the official clients, which read
    Retry-After-Ms first, are told a broken number exactly.

    `should_retry` False tells the official clients not to try again by themselves, whatever the status.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        retry_after_sec: float | None = None,
        should_retry: bool = True,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.kind, self.code = status, message, kind, code
        self.param, self.retry_after_sec, self.should_retry = param, retry_after_sec, should_retry

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}

    def headers(self) -> dict[str, str]:
        found = {} if self.should_retry else {"x-should-retry": "false"}
        if self.retry_after_sec is not None:
            found["Retry-After"] = str(math.ceil(self.retry_after_sec))
            if not float(self.retry_after_sec).is_integer():
                found["Retry-After-Ms"] = str(math.ceil(self.retry_after_sec * 1000))
        return found

    def frame(self) -> bytes:
        """The same as an event, for a stream that has begun."""
        return b"data: " + orjson.dumps(self.body()) + b"\n\n"


def unauthorized(message: str) -> ApiError:
    return ApiError(401, message, kind="authentication_error", code="invalid_api_key")


def paused(retry_after_sec: float) -> ApiError:
    return ApiError(503, PAUSED_MESSAGE, kind="server_error", code="paused", retry_after_sec=retry_after_sec)


def held(until: str, reason: str, remaining_sec: float) -> ApiError:
    """The admin's hold. One longer than clients wait by themselves is said at once instead of after their retries."""
    return ApiError(
        503,
        f"submissions are held until {until}: {reason}",
        kind="server_error",
        code="submission_held",
        retry_after_sec=max(1, int(remaining_sec)),
        should_retry=remaining_sec <= LONGEST_RETRY_AFTER_SEC,
    )


STOPPING = "stopping"


def stopping() -> ApiError:
    return ApiError(503, "the gateway stops", kind="server_error", code=STOPPING, retry_after_sec=1)


def overloaded() -> ApiError:
    return ApiError(
        503, "the gateway has as many requests as it bears", kind="server_error", code="overloaded", retry_after_sec=1
    )


def engines_busy() -> ApiError:
    message = "every engine has as many requests as it may have (gateway.maxInFlightPerEngine)"
    return ApiError(503, message, kind="server_error", code="engines_busy", retry_after_sec=1)


def bad_request(param: str | None, message: str, *, status: int = 400, code: str = "invalid_value") -> ApiError:
    """`message` may name a value of any length; its begin and the end, which says the fix, are told."""
    told = message if len(message) <= 2000 else f"{message[:1000]} … {message[-1000:]}"
    return ApiError(status, told, param=param, code=code)


_REFUSALS: Mapping[str, str] = {
    "staleness_bound": "too many turns are on their way to the trainer (maxHeadOffPolicyness)",
    "queue_full": "the experience queue is full (queue.maxSize)",
    "max_concurrent": "too many turns are generating (gateway.maxConcurrent)",
}


def too_many(code: str, retry_after_sec: int) -> ApiError:
    return ApiError(429, _REFUSALS[code], kind="rate_limit_error", code=code, retry_after_sec=retry_after_sec)


def store_down() -> ApiError:
    return ApiError(
        500, "the experience store cannot be written", kind="server_error", code="store_down", retry_after_sec=2
    )


def internal() -> ApiError:
    return ApiError(500, "the gateway failed; its log says where", kind="server_error", code="internal_error")


def bad_gateway(message: str, code: str = "upstream_error") -> ApiError:
    return ApiError(502, message, kind="server_error", code=code)


def timed_out(message: str) -> ApiError:
    return ApiError(504, message, kind="server_error", code="upstream_timeout")


def not_found(path: str) -> ApiError:
    return ApiError(404, f"no such endpoint: {path}; this server has {ENDPOINTS}", code="not_found")


def no_model(name: str, served: str) -> ApiError:
    return ApiError(404, f"model {name!r} does not exist; this server has {served!r}", code="model_not_found")


def from_engine(status: int, payload: bytes) -> ApiError:
    """An engine's refusal: its 4xx is the client's mistake in the engine's words, a 503 passes, anything else is a bad
    gateway."""
    message = _engine_words(payload) or f"the engine answered {status}"
    if 400 <= status < 500 and status not in (401, 403, 404, 408, 429):
        return bad_request(None, message, status=status, code="invalid_request")
    if status == 503:
        words = f"the engine takes no more work: {message}"
        return ApiError(503, words, kind="server_error", code="upstream_busy", retry_after_sec=1)
    return bad_gateway(f"the engine failed: {message}")


def from_frame(data: bytes) -> ApiError:
    """The same said in a stream, where SGLang puts the status into the error's `code`."""
    try:
        code = orjson.loads(data)["error"]["code"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        code = None
    return from_engine(code if isinstance(code, int) else 502, data)


def _engine_words(payload: bytes) -> str:
    try:
        parsed = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return payload[:300].decode("utf-8", "replace")
    error = parsed.get("error", parsed) if isinstance(parsed, dict) else parsed
    message = error.get("message") if isinstance(error, dict) else error
    return _WHERE_IN_ITS_SOURCE.split(str(message), maxsplit=1)[0].rstrip()[:2000]
