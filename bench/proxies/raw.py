"""The least a Python proxy can do: raw ASGI, one shared aiohttp session, bytes passed on. `… raw PORT ENGINE_URL`."""

import sys
from typing import Any

import aiohttp
import uvicorn


class PassThrough:
    """ASGI. Same server and same client library as the gateway."""

    def __init__(self, engine_url: str) -> None:
        self._url, self._http = engine_url, None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        if self._http is None:
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=4.0),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
                auto_decompress=False,
            )
        headers = {"Content-Type": "application/json"}
        async with self._http.post(self._url + scope["path"], data=body, headers=headers) as answer:
            passed = [(b"content-type", answer.headers["Content-Type"].encode())]
            if answer.headers.get("Content-Length"):
                passed.append((b"content-length", answer.headers["Content-Length"].encode()))
            await send({"type": "http.response.start", "status": answer.status, "headers": passed})
            async for chunk in answer.content.iter_any():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


def main() -> None:
    app = PassThrough(sys.argv[2])
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", lifespan="off", backlog=4096)


if __name__ == "__main__":
    main()
