"""An engine that costs nothing: `python -m bench.proxies.engine PORT TOKENS STEP_SEC`.

It answers in SGLang's shapes, from bytes made at its start, and only with what it is asked for: log probabilities and
ids cost a proxy that wants them their size. A stream has a token every STEP_SEC; other answers come at once.
"""

import asyncio
import sys
from typing import Any

import orjson
import uvicorn

VERSION = "1-0a1b2c3d"
_PROMPT_IDS = list(range(1000, 1040))


class Engine:
    """ASGI."""

    def __init__(self, tokens: int, step_sec: float) -> None:
        self._step_sec = step_sec
        self._chunks = {wanted: _chunks(tokens, logprobs=wanted) for wanted in (False, True)}
        self._ids = _event(choices=[], sglext={"input_ids": _PROMPT_IDS, "output_ids": [_ids(tokens)]})
        self._replies = {wanted: _reply(tokens, recorded=wanted) for wanted in (False, True)}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        if not scope["path"].endswith("/chat/completions"):
            await _answer(send, _about(scope["path"]))
            return
        asked = orjson.loads(body)
        if asked.get("stream"):
            await self._stream(asked, send)
        else:
            await _answer(send, self._replies[bool(asked.get("return_meta_info"))])

    async def _stream(self, asked: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for chunk in self._chunks[bool(asked.get("logprobs"))]:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await asyncio.sleep(self._step_sec)
        end = self._ids if asked.get("return_output_ids_in_sglext") else b""
        await send({"type": "http.response.body", "body": end + b"data: [DONE]\n\n"})


def _about(path: str) -> bytes:
    """Whatever a router asks before it believes in an engine."""
    if path == "/v1/models":
        return orjson.dumps({"object": "list", "data": [{"id": "policy", "object": "model", "owned_by": "sglang"}]})
    return orjson.dumps(
        {
            "weight_version": VERSION,
            "model_path": "policy",
            "served_model_name": "policy",
            "is_generation": True,
            "version": "0.5.23",
            "model_type": "llama",
        }
    )


async def _answer(send: Any, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _ids(tokens: int) -> list[int]:
    return [2000 + position % 500 for position in range(tokens)]


def _logprob(position: int) -> float:
    return -0.1234567 - (position % 17) / 7


def _content(position: int) -> dict[str, Any]:
    return {
        "token": f" word{position % 100}",
        "bytes": [32, 119, 111, 114, 100],
        "logprob": _logprob(position),
        "top_logprobs": [],
    }


def _event(**fields: Any) -> bytes:
    chunk = {"id": "0123456789abcdef0123456789abcdef", "object": "chat.completion.chunk", "created": 1700000000}
    return b"data: " + orjson.dumps(chunk | {"model": "policy"} | fields) + b"\n\n"


def _choice(delta: dict[str, Any], logprobs: Any = None, finish_reason: str | None = None) -> dict[str, Any]:
    return {
        "index": 0,
        "delta": delta,
        "logprobs": logprobs,
        "finish_reason": finish_reason,
        "matched_stop": None,
    }


def _chunks(tokens: int, *, logprobs: bool) -> list[bytes]:
    first = {"role": "assistant", "content": "", "reasoning_content": None}
    chunks = [_event(choices=[_choice(first)])]
    for position in range(tokens):
        delta = {"role": None, "content": f" word{position % 100}", "reasoning_content": None, "tool_calls": None}
        value = {"content": [_content(position)]} if logprobs else None
        chunks.append(_event(choices=[_choice(delta, value)]))
    return [*chunks, _event(choices=[_choice({"content": ""}, None, "stop")])]


def _reply(tokens: int, *, recorded: bool) -> bytes:
    text = "".join(f" word{position % 100}" for position in range(tokens))
    message = {"role": "assistant", "content": text, "reasoning_content": None, "tool_calls": None}
    choice: dict[str, Any] = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    reply: dict[str, Any] = {
        "id": "0123456789abcdef0123456789abcdef",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "policy",
        "choices": [choice],
        "usage": {"prompt_tokens": 40, "completion_tokens": tokens, "total_tokens": 40 + tokens},
        "metadata": {"weight_version": VERSION},
    }
    if recorded:
        triples = [[_logprob(position), token, None] for position, token in enumerate(_ids(tokens))]
        choice |= {
            "logprobs": {"content": [_content(position) for position in range(tokens)]},
            "prompt_token_ids": _PROMPT_IDS,
            "response_token_ids": _ids(tokens),
            "meta_info": {"weight_version": VERSION, "output_token_logprobs": triples},
        }
    return orjson.dumps(reply)


def main() -> None:
    port, tokens, step_sec = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    uvicorn.run(
        Engine(tokens, step_sec), host="127.0.0.1", port=port, log_level="warning", lifespan="off", backlog=4096
    )


if __name__ == "__main__":
    main()
