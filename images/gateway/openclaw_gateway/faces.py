"""How the clients of a route speak: what a request means, how answers, streams and errors look. Pure.

Between the faces and the engine there is one language, the chat completion: what a face translates is recorded,
matched to its session and admitted like any chat turn.
"""

from typing import Any, Protocol

from openclaw_gateway import chat_requests, forwarding
from openclaw_gateway.chat_requests import ChatRequest
from openclaw_gateway.errors import ApiError

Json = dict[str, Any]
CHAT_PATH, COMPLETIONS_PATH = "/v1/chat/completions", "/v1/completions"
PING = b": ping\n\n"


class Stream(Protocol):
    """One stream on its way to a client that does not speak chat completions."""

    def feed(self, events: bytes) -> bytes:
        """Whole chat events in, the client's events out."""

    def failure(self, frame: bytes) -> bytes:
        """The error frame of a chat stream, for this client."""


class Face(Protocol):
    """One public route."""

    path: str
    engine_path: str
    ping: bytes
    """An event that says nothing, for connections that would be given up."""

    def parse(self, headers: Any, raw: bytes, *, default_main: bool) -> ChatRequest:
        """Raises ApiError 400 naming the field."""

    def upstream(self, request: ChatRequest, *, model: str, rid: str, recorded: bool) -> bytes:
        """Body for the engine."""

    def reply(self, reply: bytes) -> bytes:
        """The engine's reply as JSON, less what only the gateway asked for, as the client reads it."""

    def stream(self) -> Stream | None:
        """None: the client reads chat events as they are."""

    def error(self, error: ApiError, request_id: str) -> Json:
        """Body of a refusal."""

    def headers(self, request_id: str) -> dict[str, str]:
        """Headers of every answer."""


class ChatFace:
    """OpenAI's chat completions: the language itself."""

    path = engine_path = CHAT_PATH
    ping = PING

    def parse(self, headers: Any, raw: bytes, *, default_main: bool) -> ChatRequest:
        return chat_requests.parse(headers, raw, default_main=default_main)

    def upstream(self, request: ChatRequest, *, model: str, rid: str, recorded: bool) -> bytes:
        return forwarding.upstream_body(request, model=model, rid=rid, recorded=recorded)

    def reply(self, reply: bytes) -> bytes:
        return reply

    def stream(self) -> Stream | None:
        return None

    def error(self, error: ApiError, request_id: str) -> Json:
        del request_id
        return error.body()

    def headers(self, request_id: str) -> dict[str, str]:
        return {"x-request-id": request_id}


class CompletionsFace(ChatFace):
    """OpenAI's text completions: no conversation, so nothing to learn from; passed on and counted."""

    path = engine_path = COMPLETIONS_PATH

    def parse(self, headers: Any, raw: bytes, *, default_main: bool) -> ChatRequest:
        return chat_requests.parse_completion(headers, raw, default_main=default_main)

    def upstream(self, request: ChatRequest, *, model: str, rid: str, recorded: bool) -> bytes:
        del recorded
        return forwarding.completion_body(request, model=model, rid=rid)
