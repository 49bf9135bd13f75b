"""POST /v1/messages: Anthropic's Messages API as a face of the chat route."""

from typing import Any

import orjson

from openclaw_gateway import chat_requests, faces, forwarding
from openclaw_gateway.anthropic import replies, requests, streams
from openclaw_gateway.chat_requests import ChatRequest
from openclaw_gateway.errors import ApiError

Json = dict[str, Any]
PATH = "/v1/messages"
COUNT_PATH = "/v1/messages/count_tokens"


class MessagesFace:
    path = PATH
    engine_path = faces.CHAT_PATH
    ping = streams.PING

    def parse(self, headers: Any, raw: bytes, *, default_main: bool) -> ChatRequest:
        body = requests.to_chat(chat_requests.json_object(raw))
        return chat_requests.of_body(headers, body, raw, default_main=default_main)

    def upstream(self, request: ChatRequest, *, model: str, rid: str, recorded: bool) -> bytes:
        return forwarding.upstream_body(request, model=model, rid=rid, recorded=recorded)

    def reply(self, reply: bytes) -> bytes:
        return orjson.dumps(replies.message(orjson.loads(reply)))

    def stream(self) -> faces.Stream:
        return streams.MessageStream()

    def error(self, error: ApiError, request_id: str) -> Json:
        return replies.error_body(error, request_id)

    def headers(self, request_id: str) -> dict[str, str]:
        return {"x-request-id": request_id, "request-id": request_id}
