"""The endpoint client against a real HTTP server in this process, with bounds of tenths of a second."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from openclaw_judge.endpoint import Endpoint, redact, retry_after
from openclaw_judge.state import JudgingState

KEY = "correct-horse-battery"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def answer(text: str | None) -> web.Response:
    return web.json_response({"choices": [{"message": {"role": "assistant", "content": text}}]})


@asynccontextmanager
async def endpoint(handler: Handler, **changes: Any) -> AsyncIterator[tuple[Endpoint, JudgingState]]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    state = JudgingState()
    options: dict[str, Any] = {
        "base_url": f"http://127.0.0.1:{port}/v1/",
        "key": KEY,
        "model": "prm",
        "temperature": 0.5,
        "max_tokens": 64,
        "timeout_sec": 5,
        "concurrency": 4,
    }
    async with aiohttp.ClientSession() as session:
        yield Endpoint(session, **options | changes, state=state), state
    await runner.cleanup()


async def ask(client: Endpoint) -> tuple[str | None, float]:
    started = asyncio.get_running_loop().time()
    text = await client.ask([{"role": "user", "content": "?"}], deadline=started + 2 * client.timeout_sec)
    return text, asyncio.get_running_loop().time() - started


async def test_ask_sends_key_model_and_sampling_and_returns_the_text() -> None:
    seen: dict[str, Any] = {}

    async def handler(request: web.Request) -> web.Response:
        seen.update(await request.json(), authorization=request.headers["Authorization"])
        return answer(r"\boxed{1}")

    async with endpoint(handler) as (client, state):
        assert (await ask(client))[0] == r"\boxed{1}"
    assert seen["authorization"] == f"Bearer {KEY}"
    assert (seen["model"], seen["temperature"], seen["max_tokens"]) == ("prm", 0.5, 64)
    assert state.ok


async def test_ask_gives_up_on_a_hung_endpoint_after_one_timeout() -> None:
    async def handler(_: web.Request) -> web.Response:
        await asyncio.sleep(3)
        return answer("late")

    async with endpoint(handler, timeout_sec=1) as (client, state):
        text, seconds = await ask(client)
    assert text is None
    assert 0.9 < seconds < 1.9
    assert state.snapshot().counts["timeouts"] == 1


async def test_ask_retries_a_429_after_its_retry_after() -> None:
    times: list[float] = []

    async def handler(_: web.Request) -> web.Response:
        times.append(time.monotonic())
        if len(times) == 1:
            return web.json_response({"error": {"message": "slow down"}}, status=429, headers={"Retry-After": "0.2"})
        return answer("fine")

    async with endpoint(handler) as (client, state):
        assert (await ask(client))[0] == "fine"
    assert times[1] - times[0] >= 0.2
    assert state.snapshot().counts["retries"] == 1


async def test_ask_does_not_wait_for_a_retry_after_beyond_the_deadline() -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "slow down"}}, status=429, headers={"Retry-After": "60"})

    async with endpoint(handler) as (client, _):
        text, seconds = await ask(client)
    assert text is None
    assert seconds < 5


async def test_ask_with_a_refused_key_reports_the_endpoints_words_without_the_key_and_does_not_retry() -> None:
    calls: list[int] = []

    async def handler(_: web.Request) -> web.Response:
        calls.append(1)
        return web.json_response({"error": {"message": f"Incorrect API key provided: {KEY}. See docs."}}, status=401)

    async with endpoint(handler) as (client, state):
        assert (await ask(client))[0] is None
    shown = state.snapshot()
    assert len(calls) == 1
    assert not shown.ok
    assert shown.error == (
        "HTTP 401: Incorrect API key provided: [redacted]. See docs"
        "; put a key it takes into the Secret of spec.api.apiKeySecretRef"
    )


@pytest.mark.parametrize("body", ["<html>hello</html>", "[]", '{"choices": []}', '{"choices": [{"message": {}}]}'])
async def test_ask_gives_no_text_for_garbage(body: str) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(text=body)

    async with endpoint(handler) as (client, state):
        assert (await ask(client))[0] is None
    assert state.snapshot().counts["failed"] == 1


async def test_ask_never_has_more_requests_open_than_the_concurrency() -> None:
    now, most = 0, 0

    async def handler(_: web.Request) -> web.Response:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.03)
        now -= 1
        return answer("x")

    async with endpoint(handler, concurrency=2) as (client, _):
        texts = await asyncio.gather(*(ask(client) for _ in range(8)))
    assert [text for text, _ in texts] == ["x"] * 8
    assert most == 2


async def test_state_comes_back_by_a_probe_after_the_endpoint_is_mended() -> None:
    broken = True

    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=400, text="no such model") if broken else answer("OK")

    async with endpoint(handler) as (client, state):
        assert not await client.probe()
        assert state.snapshot().error == "HTTP 400: no such model"
        broken = False
        assert await client.probe()
        assert state.snapshot().ok
        assert state.snapshot().error is None


def test_state_needs_three_failures_in_a_row_to_call_a_healthy_endpoint_failing() -> None:
    state = JudgingState()
    state.answered()
    for _ in range(2):
        state.failed("HTTP 500: oops")
    assert state.ok
    state.answered()
    for _ in range(3):
        state.failed("HTTP 500: oops")
    assert not state.ok


def test_state_calls_a_healthy_endpoint_failing_at_the_first_refusal_of_the_key() -> None:
    state = JudgingState()
    state.answered()
    state.failed("HTTP 401: wrong key", refused_key=True)
    assert (state.ok, state.snapshot().error) == (False, "HTTP 401: wrong key")


def test_state_logs_each_fault_once_and_the_recovery(caplog: pytest.LogCaptureFixture) -> None:
    state = JudgingState()
    with caplog.at_level("INFO"):
        for _ in range(3):
            state.failed("HTTP 401: wrong key", refused_key=True)
        state.failed("HTTP 500: oops")
        state.answered()
        state.answered()
    assert caplog.messages == [
        "the judge endpoint fails: HTTP 401: wrong key",
        "the judge endpoint fails: HTTP 500: oops",
        "the judge endpoint answers",
    ]


def test_redact_hides_the_key_and_what_looks_like_one() -> None:
    text = redact("bad key abc123 (sent sk-live-9f8a7b, header Bearer q.w.e)", "abc123")
    assert "abc123" not in text and "9f8a7b" not in text and "q.w.e" not in text


def test_retry_after_reads_seconds_and_dates() -> None:
    assert retry_after("2.5") == 2.5
    assert retry_after("Thu, 01 Jan 1970 00:01:40 GMT", now=lambda: 90.0) == 10.0
    assert retry_after("soon") is None
    assert retry_after(None) is None
