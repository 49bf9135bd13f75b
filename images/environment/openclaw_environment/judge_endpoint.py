r"""`python -m openclaw_environment.judge_endpoint`: a small OpenAI-compatible server that judges by rule, offline.

It stands where an LLM provider would: it takes a bearer key and refuses a wrong one, is sent a prompt and answers
with a reasoning and `\boxed{score}`. It decides from the next state it finds in that prompt and from nothing else.
"""

import asyncio
import hmac
import logging
import os
import re
import sys
import time
import uuid
from typing import Any

from aiohttp import web

from openclaw_core import logs, placeholders, tasks
from openclaw_environment.tasks.reactions import judge_reaction

PORT = 8500
ENV_KEY = "OPENCLAW_JUDGE_ENDPOINT_KEY"
MODEL = "rule-judge"
_NEXT_STATE = re.compile(r'<next_state role="[^"]*">\n(.*?)\n?</next_state>', re.DOTALL)
_MESSAGE = re.compile(r"^\[(\w+)\] ", re.MULTILINE)
_TOOL_ERROR = re.compile(r"\b(error|exception|traceback|failed|failure|not found|exit code [1-9])\b", re.IGNORECASE)
_WORDS = {
    1: "The next state approves of the response.",
    -1: "The next state complains about the response or asks for a change.",
    0: "The next state does not say whether the response was good.",
}
_log = logging.getLogger(__name__)
_KEY: web.AppKey[str] = web.AppKey("key", str)


def judge(prompt: str) -> str:
    r"""Reasoning and `\boxed{score}` for the next state in `prompt`; a prompt without one is answered `OK`."""
    found = _NEXT_STATE.findall(prompt)
    if not found:
        return "OK"
    score = _score(found[-1])
    return f"{_WORDS[score]}\n\\boxed{{{score}}}"


def _score(next_state: str) -> int:
    """Tools speak first: a failed action is not made good by what follows. Else the user's words decide."""
    marks = [*_MESSAGE.finditer(next_state)]
    parts: dict[str, str] = {}
    for mark, end in zip(marks, [*(m.start() for m in marks[1:]), len(next_state)], strict=True):
        role = mark.group(1)
        parts[role] = parts.get(role, "") + next_state[mark.end() : end] + "\n"
    if "tool" in parts and _TOOL_ERROR.search(parts["tool"]):
        return -1
    if "user" in parts:
        return judge_reaction(parts["user"])
    return 1 if "tool" in parts else 0


def build_app(key: str) -> web.Application:
    app = web.Application(client_max_size=8 * 2**20)
    app[_KEY] = key
    app.add_routes(
        [
            web.get("/healthz", _ok),
            web.get("/readyz", _ok),
            web.get("/v1/models", _models),
            web.post("/v1/chat/completions", _chat_completions),
        ]
    )
    return app


async def _ok(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _models(request: web.Request) -> web.Response:
    if not _authorized(request):
        return _error(401, "Incorrect API key provided.", "invalid_api_key")
    entry = {"id": MODEL, "object": "model", "created": 0, "owned_by": "openclaw"}
    return web.json_response({"object": "list", "data": [entry]})


async def _chat_completions(request: web.Request) -> web.Response:
    if not _authorized(request):
        return _error(401, "Incorrect API key provided.", "invalid_api_key")
    try:
        body = await request.json()
        prompt = body["messages"][-1]["content"]
        if not isinstance(prompt, str):
            raise TypeError("content is not a string")
    except (ValueError, KeyError, IndexError, TypeError) as error:
        return _error(400, f"messages[-1].content must be a string ({type(error).__name__}).", "invalid_request")
    return web.json_response(_completion(str(body.get("model") or MODEL), prompt, judge(prompt)))


def _completion(model: str, prompt: str, text: str) -> dict[str, Any]:
    asked, said = len(prompt.split()), len(text.split())
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said},
    }


def _authorized(request: web.Request) -> bool:
    sent = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
    return hmac.compare_digest(sent.encode(), request.app[_KEY].encode())


def _error(status: int, message: str, code: str) -> web.Response:
    kind = "authentication_error" if status == 401 else "invalid_request_error"
    return web.json_response({"error": {"message": message, "type": kind, "param": None, "code": code}}, status=status)


async def _main(key: str) -> None:
    runner = web.AppRunner(build_app(key), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", PORT).start()
    await tasks.stop_on_signals().wait()
    await runner.cleanup()


def main() -> int:
    """Exit code 2 without a usable key."""
    logs.configure("judge-endpoint")
    key = os.environ.get(ENV_KEY, "").strip()
    if fault := placeholders.fault(key):
        _log.error("the judge endpoint does not start: environment variable %s is %s", ENV_KEY, fault)
        return 2
    asyncio.run(_main(key))
    return 0


if __name__ == "__main__":
    sys.exit(main())
