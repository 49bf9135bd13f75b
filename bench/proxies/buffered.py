"""The design of OpenClaw-RL's API server: FastAPI, an httpx client per request. `… buffered PORT ENGINE_URL`.

Its own way is buffered: the engine is asked without a stream, the answer is recorded, a stream is made of it in two
parts. `X-Bench-Stream: 1` lets the same client pass the engine's events on, so that chunks can be compared. It neither
tokenises nor writes to a disk here, which flatters it.
"""

import sys
from collections import deque
from typing import Any

import httpx
import orjson
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse

_recorded: deque[dict[str, Any]] = deque(maxlen=1000)


def build(engine_url: str) -> FastAPI:
    app = FastAPI()
    url = f"{engine_url}/v1/chat/completions"

    @app.post("/v1/chat/completions")
    async def _chat(request: Request) -> Any:
        body = await request.json()
        if body.get("stream") and request.headers.get("x-bench-stream"):
            return StreamingResponse(_passed(url, body), media_type="text/event-stream")
        wanted = body | {"stream": False, "logprobs": True, "return_token_ids": True, "return_meta_info": True}
        async with httpx.AsyncClient(timeout=None) as client:
            reply = (await client.post(url, json=wanted)).json()
        choice = reply["choices"][0]
        triples = choice["meta_info"]["output_token_logprobs"]
        _recorded.append({"messages": body["messages"], "response": choice["message"], "logprobs": triples})
        for name in ("prompt_token_ids", "response_token_ids", "meta_info"):
            choice.pop(name, None)
        if body.get("stream"):
            return StreamingResponse(_two_parts(reply), media_type="text/event-stream")
        return JSONResponse(reply)

    return app


async def _passed(url: str, body: Any) -> Any:
    async with httpx.AsyncClient(timeout=None) as client, client.stream("POST", url, json=body) as answer:
        async for chunk in answer.aiter_bytes():
            yield chunk


async def _two_parts(reply: Any) -> Any:
    choice = reply["choices"][0]
    for delta, reason in (({"content": choice["message"]["content"]}, None), ({}, "stop")):
        chunk = reply | {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
        yield b"data: " + orjson.dumps(chunk) + b"\n\n"
    yield b"data: [DONE]\n\n"


def main() -> None:
    uvicorn.run(build(sys.argv[2]), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
