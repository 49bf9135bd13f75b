"""Simulated users against a gateway-like server in this process: what it is sent, and what the users write down."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from openclaw_environment.chat import Chat
from openclaw_environment.journal import Journal
from openclaw_environment.server import Environment, build_app
from openclaw_environment.settings import Settings
from openclaw_environment.tasks.reactions import DISLIKED, LIKED
from openclaw_environment.tasks.short_statement import KNOWN, SHORT_STATEMENT
from openclaw_environment.users import Users

Reply = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


def liked_answer(body: dict[str, Any]) -> str:
    """A short statement in the words of the question, with what users know of it."""
    question = body["messages"][0]["content"].partition("?")[0]
    known = KNOWN.get(f"{question}?", ("so",))[0]
    return f"It is {' '.join(question.lower().split()[-5:])} {known}."


def test_liked_answer_is_liked() -> None:
    for question in SHORT_STATEMENT.training:
        body = {"messages": [{"content": SHORT_STATEMENT.prompt(question)}]}
        assert SHORT_STATEMENT.prefers(question, liked_answer(body)), question


async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    text = liked_answer(body)
    if not body.get("stream"):
        return web.json_response({"choices": [{"message": {"role": "assistant", "content": text}}]})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for piece in (text[:5], text[5:]):
        event = {"choices": [{"index": 0, "delta": {"content": piece}}]}
        await response.write(f"data: {json.dumps(event)}\n\n".encode())
    await response.write(b'data: {"choices": [], "usage": {}}\n\ndata: [DONE]\n\n')
    return response


@asynccontextmanager
async def talking(reply: Reply, **variables: str) -> AsyncIterator[tuple[Users, Journal, list[tuple[Any, Any]]]]:
    seen: list[tuple[Any, Any]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        seen.append((dict(request.headers), body))
        return await reply(request, body)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    async with aiohttp.ClientSession() as session:
        journal = Journal()
        users = Users(Settings.read(variables), Chat(session, url, journal), journal, "policy")
        task = asyncio.create_task(users.run())
        yield users, journal, seen
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    await runner.cleanup()


async def until(condition: Callable[[], bool], seconds: float = 3.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the users tell nobody when they are done
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("stream", ["never", "always"])
async def test_session_is_a_question_and_a_closing_turn_with_the_reaction(stream: str) -> None:
    async with talking(answer, OPENCLAW_USERS="1", OPENCLAW_STREAM=stream) as (users, journal, seen):
        await until(lambda: len(seen) >= 2)
        users.stop()
        await until(lambda: journal.report(stopped=True).in_flight == 0)
    (question_headers, question), (closing_headers, closing) = seen[:2]
    assert question["messages"][0]["content"].endswith(" Answer in one short sentence.")
    assert (question["model"], question["temperature"], question["max_tokens"]) == ("policy", 0.7, 24)
    assert "X-Session-Done" not in question_headers
    assert closing["messages"][:2] == [*question["messages"], {"role": "assistant", "content": liked_answer(question)}]
    assert closing["messages"][2]["content"] in LIKED
    assert closing["max_tokens"] == 1
    assert closing_headers["X-Session-Done"] == "1"
    assert closing_headers["X-Turn-Type"] == question_headers["X-Turn-Type"] == "main"
    assert closing_headers["X-Session-Id"] == question_headers["X-Session-Id"]


async def test_swapped_users_complain_about_what_they_like_and_still_count_it_as_preferred() -> None:
    async with talking(answer, OPENCLAW_USERS="1", OPENCLAW_REACTIONS="swapped") as (_, journal, seen):
        await until(lambda: len(seen) >= 2)
        report = journal.report(stopped=False)
    assert seen[1][1]["messages"][2]["content"] in DISLIKED
    assert report.preferred == report.judged >= 1


async def test_sessions_of_all_users_are_distinct_and_run_at_once() -> None:
    open_now, most = 0, 0

    async def slow(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await asyncio.sleep(0.05)
        open_now -= 1
        return await answer(request, body)

    async with talking(slow, OPENCLAW_USERS="5", OPENCLAW_STREAM="never") as (_, _, seen):
        await until(lambda: len(seen) >= 20)
    assert most == 5
    questions = [headers["X-Session-Id"] for headers, body in seen if len(body["messages"]) == 1]
    assert len(set(questions)) == len(questions)


async def test_refusals_are_waited_out_as_retry_after_says_and_written_down_with_times() -> None:
    replies: list[tuple[int, str]] = [(503, "weight_update"), (429, "staleness_bound")]

    async def refuse(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if replies:
            status, code = replies.pop(0)
            error = {"error": {"message": "later", "type": "x", "param": None, "code": code}}
            return web.json_response(error, status=status, headers={"Retry-After": "0.1"})
        return await answer(request, body)

    began = time.time()
    async with talking(refuse, OPENCLAW_USERS="1") as (users, journal, _):
        await until(lambda: journal.report(stopped=False).turns_ok >= 2)
        users.stop()
        await until(lambda: journal.report(stopped=True).in_flight == 0)
        report = journal.report(stopped=True)
    assert report.refused_total == {"503:weight_update": 1, "429:staleness_bound": 1}
    (sent_1, answered_1, status_1, code_1), (sent_2, _, _, _) = report.refused
    assert (status_1, code_1) == (503, "weight_update")
    assert began <= sent_1 <= answered_1 <= sent_2 - 0.1
    assert report.failed == 0


async def test_cut_stream_is_a_failure_and_not_an_answer() -> None:
    async def cut(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b'data: {"choices": [{"delta": {"content": "half"}}]}\n\n')
        return response

    async with talking(cut, OPENCLAW_USERS="1", OPENCLAW_STREAM="always") as (_, journal, _):
        await until(lambda: journal.report(stopped=False).failed == 1)
        report = journal.report(stopped=False)
    assert report.turns_ok == report.judged == report.sessions == 0


async def test_server_error_is_not_asked_again() -> None:
    async def broken(_: web.Request, __: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"error": {"message": "engine away", "code": "bad_gateway"}}, status=502)

    async with talking(broken, OPENCLAW_USERS="1") as (_, journal, seen):
        await until(lambda: journal.report(stopped=False).failed == 1)
        await asyncio.sleep(0.05)
        assert len(seen) == 1


async def test_stopped_users_wait_for_start_and_the_report_says_so() -> None:
    async with talking(answer, OPENCLAW_USERS="2", OPENCLAW_START="stopped") as (users, journal, seen):
        await asyncio.sleep(0.05)
        assert seen == []
        runner = web.AppRunner(build_app(Environment(users, journal)))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        base = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with aiohttp.ClientSession() as http:
            async with http.get(f"{base}/report") as response:
                assert (await response.json())["stopped"] is True
            async with http.post(f"{base}/start") as response:
                assert (await response.json())["stopped"] is False
            await until(lambda: len(seen) >= 4)
            async with http.post(f"{base}/stop") as response:
                assert (await response.json())["stopped"] is True
            await until(lambda: journal.report(stopped=True).in_flight == 0)
            count = len(seen)
            await asyncio.sleep(0.05)
            assert len(seen) == count
            async with http.get(f"{base}/metrics") as response:
                assert f"openclawrl_environment_turns_ok_total {float(count)}" in await response.text()
        await runner.cleanup()
