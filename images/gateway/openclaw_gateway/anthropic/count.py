"""POST /v1/messages/count_tokens: the length of the prompt as the engine would render it. Nothing is kept."""

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson

from openclaw_gateway import chat_requests, errors, forwarding
from openclaw_gateway.anthropic import requests
from openclaw_gateway.upstream import Upstream

ENGINE_PATH = "/v1/tokenize"
_ANSWER_SEC = 30.0


async def count(upstream: Upstream, raw: bytes, *, model: str, session: str) -> Mapping[str, Any]:
    """Raises ApiError: 400 for a fault of the request, 502/504 without an engine's answer."""
    body = chat_requests.json_object(raw)
    chat = {"messages": requests.messages(body)} | requests.prompt_fields(body)
    try:
        async with asyncio.timeout(_ANSWER_SEC):
            with await upstream.post(session, ENGINE_PATH, forwarding.tokenize_body(chat, model=model)) as call:
                payload = await call.read()
    except TimeoutError as error:
        raise errors.timed_out("the engine did not count in time") from error
    if call.status != 200:
        raise errors.from_engine(call.status, payload)
    try:
        return {"input_tokens": int(orjson.loads(payload)["count"])}
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise errors.bad_gateway("the engine's answer is not a count of tokens") from error
