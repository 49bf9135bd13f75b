"""The field's cases 1 to 15: what broke other gateways, done to this one by an engine that keeps to no rule.

Each test names its case. The gateway is the real process; clients are the official ones where one can show the fault.
"""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import openai
import pytest

from tests.contract.gateway.gateway_process import KEY, GatewayProcess, curl, curl_chat, gateway_process
from tests.fakes.engine import FakeEngine, Knobs
from tests.fakes.hostile_engine import HostileEngine, Talk, envelope

pytestmark = [pytest.mark.contract, pytest.mark.timeout(300)]

HI: Any = [{"role": "user", "content": "Hi"}]
Script = Callable[[Talk], Awaitable[None]]


@asynccontextmanager
async def against(directory: Path, script: Script) -> AsyncIterator[tuple[GatewayProcess, HostileEngine]]:
    async with HostileEngine(script) as engine, gateway_process(directory, [engine.url]) as gateway:
        yield gateway, engine


def client(gateway: GatewayProcess, **options: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(**{"base_url": f"{gateway.url}/v1", "api_key": KEY, "max_retries": 0} | options)


def claude(gateway: GatewayProcess, **options: Any) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(**{"base_url": gateway.url, "api_key": KEY, "max_retries": 0} | options)


async def ask(gateway: GatewayProcess, messages: Any = HI, **body: Any) -> tuple[int, bytes, str | None]:
    """(status, bytes, name of what broke it) of one chat over a bare HTTP client."""
    headers = {"Authorization": f"Bearer {KEY}"} | body.pop("headers", {})
    url = f"{gateway.url}/v1/chat/completions"
    async with gateway.http.post(url, json={"messages": messages} | body, headers=headers) as response:
        data = b""
        try:
            async for part in response.content.iter_any():
                data += part
        except aiohttp.ClientError as error:
            return response.status, data, type(error).__name__
        return response.status, data, None


def events(data: bytes) -> list[Any]:
    lines = [line[6:] for line in data.split(b"\n") if line.startswith(b"data: ")]
    return [line if line == b"[DONE]" else json.loads(line) for line in lines]


async def text_of(gateway: GatewayProcess) -> str:
    async with client(gateway) as api:
        stream = await api.chat.completions.create(model="policy", messages=HI, stream=True)
        parts = [choice.delta.content or "" async for chunk in stream for choice in chunk.choices]
        return "".join(parts)


# ---------------------------------------------------------------- what a stream may look like


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
@pytest.mark.parametrize("size", [1, 3])
async def test_case_1_bytes_split_anywhere_arrive_as_whole_events(tmp_path: Path, end: bytes, size: int) -> None:
    async def split(talk: Talk) -> None:
        talk.split = size
        await talk.head(stream=True)
        for text in ("Grüße", " \U0001f600", '\\u2028"'):
            await talk.chunk({"content": text}, end)
        await talk.finish()

    async with against(tmp_path, split) as (gateway, _):
        assert await text_of(gateway) == 'Grüße \U0001f600\\u2028"'
        async with claude(gateway) as other, other.messages.stream(model="m", max_tokens=9, messages=HI) as stream:
            assert await stream.get_final_text() == 'Grüße \U0001f600\\u2028"'


async def test_case_2_unicode_line_separators_are_text(tmp_path: Path) -> None:
    text = "a\u2028b\u2029c\u0085d"

    async def separators(talk: Talk) -> None:
        await talk.head(stream=True)
        await talk.chunk({"content": text})
        await talk.finish()

    async with against(tmp_path, separators) as (gateway, _):
        assert await text_of(gateway) == text
        _, output = await curl(*curl_chat(gateway.url, {"messages": HI, "stream": True}))
        assert text.encode() in output


async def test_case_4_chunks_without_choices_pass(tmp_path: Path) -> None:
    async def usage(talk: Talk) -> None:
        await talk.head(stream=True)
        await talk.event(envelope([]) | {"usage": None})
        await talk.chunk({"content": "Hi"})
        await talk.send(b": a comment\n\n")
        await talk.event(envelope([]))
        await talk.finish(done=False)
        await talk.event(envelope([]) | {"usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}})
        await talk.event("[DONE]")

    async with against(tmp_path, usage) as (gateway, _):
        for options, many in (({"include_usage": True}, 3), (None, 2)):
            _, data, broken = await ask(gateway, stream=True, stream_options=options)
            assert broken is None
            assert sum(not event["choices"] for event in events(data)[:-1]) == many
        async with claude(gateway) as other, other.messages.stream(model="m", max_tokens=9, messages=HI) as stream:
            assert (await stream.get_final_message()).usage.output_tokens == 2


async def test_case_5_deltas_of_parallel_tool_calls_are_the_engines_bytes(tmp_path: Path) -> None:
    def call(index: int, id_: str | None, name: str | None, arguments: str) -> Any:
        function = {"name": name, "arguments": arguments}
        return {"tool_calls": [{"id": id_, "index": index, "type": "function", "function": function}]}

    deltas = [
        call(0, "a", "look", ""),
        call(0, None, None, '{"x":'),
        call(1, "b", "go", "{"),
        call(0, None, None, "1}"),
    ]
    deltas += [call(1, None, None, "}"), {"role": "assistant", "tool_calls": []}]

    async def calls(talk: Talk) -> None:
        await talk.head(stream=True)
        for delta in deltas:
            await talk.chunk(delta)
        await talk.finish("tool_calls")

    async with against(tmp_path, calls) as (gateway, _):
        _, data, _ = await ask(gateway, stream=True)
        assert [event["choices"][0]["delta"] for event in events(data)[:-2]] == deltas
        async with client(gateway) as api, api.chat.completions.stream(model="m", messages=HI) as stream:
            found = (await stream.get_final_completion()).choices[0].message.tool_calls or []
        assert [(one.id, one.function.name, one.function.arguments) for one in found] == [
            ("a", "look", '{"x":1}'),
            ("b", "go", "{}"),
        ]
        async with claude(gateway) as other, other.messages.stream(model="m", max_tokens=9, messages=HI) as told:
            kinds = [event.type async for event in told if event.type.startswith("content_block")]
            said = (await told.get_final_message()).content
        assert [(block.id, block.input) for block in said if block.type == "tool_use"] == [("a", {"x": 1}), ("b", {})]
        assert [kind for kind in kinds if kind != "content_block_delta"] == [
            "content_block_start",
            "content_block_stop",
        ] * 2


async def test_case_6_odd_messages_and_unknown_fields_are_never_a_500(tmp_path: Path) -> None:
    messages: Any = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "image_url", "image_url": {"url": "x"}}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "function": {"name": "f"}}]},
        {"role": "tool", "tool_call_id": "a", "content": None, "odd": {"x": [None]}},
        {"role": "assistant"},
        {"role": "user", "content": "\U0001f600 \\ud800", "name": "me"},
    ]  # fmt: skip

    async def answers(talk: Talk) -> None:
        await talk.reply({"content": "ok"})

    async with against(tmp_path, answers) as (gateway, engine):
        status, data, _ = await ask(gateway, messages, unknown={"a": 1}, store=True, service_tier="auto", metadata={})
        assert status == 200, data
        assert engine.talks[0].body["messages"] == messages
        assert not {"unknown", "store", "service_tier", "metadata"} & engine.talks[0].body.keys()
        for odd in (
            {"messages": "x"},
            {"messages": [3]},
            {"messages": HI, "stream": "yes"},
            {"messages": HI, "temperature": []},
        ):
            status, data, _ = await ask(gateway, odd.pop("messages"), **odd)
            assert status == 400 and json.loads(data)["error"]["param"]


async def test_case_7_300_streams_at_once_all_end_whole(tmp_path: Path) -> None:
    """Far beyond the 100 connections a client library's pool has by default."""
    async with (
        FakeEngine(reply="Hello", knobs=Knobs(token_delay_sec=0.1)) as engine,
        gateway_process(
            tmp_path,
            [engine.url],
            policyServing={"gateway": {"maxConcurrent": 512}},
            policyTraining={"rolloutBatchSize": 128},
        ) as gateway,
    ):
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as gateway.http:
            asked = [ask(gateway, stream=True, headers={"X-Session-Id": f"s{number}"}) for number in range(300)]
            answers = await asyncio.gather(*asked)
            assert {(status, data.endswith(b"data: [DONE]\n\n")) for status, data, _ in answers} == {(200, True)}
            assert (await gateway.stats()).waiting.next_state == 300


async def test_case_8_long_lines_and_large_bodies_pass(tmp_path: Path) -> None:
    long = "y" * 300_000

    async def lengthy(talk: Talk) -> None:
        await talk.head(stream=True)
        await talk.chunk({"content": long})
        await talk.finish()

    async with against(tmp_path, lengthy) as (gateway, engine):
        assert await text_of(gateway) == long
        large: Any = [{"role": "user", "content": "x" * 20_000_000}]
        body = json.dumps({"messages": large, "stream": True})
        file = tmp_path / "body"
        file.write_text(body)
        words = curl_chat(gateway.url, {})
        words[words.index("--data-binary") + 1] = f"@{file}"
        _, output = await curl(*words)
        assert b"[DONE]" in output
        assert len(engine.talks[-1].body["messages"][0]["content"]) == 20_000_000


async def test_case_9_connection_closed_just_as_it_is_used_is_tried_again(tmp_path: Path) -> None:
    async def closes(talk: Talk) -> None:
        if talk.number == 1:
            talk.abort()  # the pooled connection: closed without an answer
            return
        await talk.reply({"content": f"answer {talk.number}"}, connection="keep-alive")

    async with against(tmp_path, closes) as (gateway, engine):
        assert (await ask(gateway))[0] == 200
        status, data, _ = await ask(gateway)
        assert (status, json.loads(data)["choices"][0]["message"]["content"]) == (200, "answer 2")
        assert len(engine.talks) == 3


async def test_case_10_headers_of_the_engines_connection_are_not_passed_on(tmp_path: Path) -> None:
    async def stale(talk: Talk) -> None:
        if talk.body.get("stream"):
            await talk.head(stream=True, x_engine="secret", keep_alive="timeout=1")
            await talk.chunk({"content": "Hi"})
            await talk.finish()
            return
        choice = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
        packed = gzip.compress(json.dumps(envelope([choice], "chat.completion")).encode())
        await talk.head(stream=False, content_encoding="gzip", content_length=str(len(packed)), x_engine="secret")
        await talk.send(packed)

    async with against(tmp_path, stale) as (gateway, _):
        for stream in (False, True):
            code, output = await curl(*curl_chat(gateway.url, {"messages": HI, "stream": stream}))
            head, _, body = output.partition(b"\r\n\r\n")
            assert code == 0 and b"Hi" in body
            assert b"content-encoding" not in head.lower() and b"x-engine" not in head.lower()


# ---------------------------------------------------------------- ends


async def cut(talk: Talk) -> None:
    await talk.head(stream=True)
    await talk.chunk({"content": "Hel"})
    talk.abort()


async def ends_without_reason(talk: Talk) -> None:
    await talk.head(stream=True)
    await talk.chunk({"content": "Hel"})
    await talk.event("[DONE]")


async def ends_without_done(talk: Talk) -> None:
    await talk.head(stream=True)
    await talk.chunk({"content": "Hel"})
    await talk.finish(done=False)


async def says_nothing(talk: Talk) -> None:
    await talk.head(stream=True)


async def fails_at_once(talk: Talk) -> None:
    """As SGLang answers a stream when its queue is full."""
    await talk.head(stream=True)
    error = {"object": "error", "message": "The request queue is full.", "type": "SERVICE_UNAVAILABLE", "code": 503}
    await talk.event({"error": error})
    await talk.event("[DONE]")


@pytest.mark.parametrize("script", [cut, ends_without_reason, ends_without_done])
async def test_case_11_stream_that_is_not_whole_is_an_error_to_every_client(tmp_path: Path, script: Script) -> None:
    async with against(tmp_path, script) as (gateway, _):
        async with client(gateway) as api:
            with pytest.raises(openai.APIError):
                stream = await api.chat.completions.create(model="policy", messages=HI, stream=True)
                [chunk async for chunk in stream]
        async with claude(gateway) as other:
            with pytest.raises(anthropic.APIError):
                async with other.messages.stream(model="m", max_tokens=9, messages=HI) as told:
                    await told.until_done()
        code, output = await curl(*curl_chat(gateway.url, {"messages": HI, "stream": True}))
        assert code != 0 and b'"error":' in output and b"[DONE]" not in output
        await gateway.settled(dropped={"upstream_error": 3})


@pytest.mark.parametrize("script", [says_nothing, fails_at_once])
async def test_case_11_stream_without_a_word_is_a_status_that_clients_try_again_after(
    tmp_path: Path, script: Script
) -> None:
    async def comes_to_itself(talk: Talk) -> None:
        if talk.number % 2 == 0:
            await script(talk)
            return
        await talk.head(stream=True)
        await talk.chunk({"content": "Hi"})
        await talk.finish()

    async with against(tmp_path, comes_to_itself) as (gateway, engine):
        async with client(gateway, max_retries=1) as api:
            stream = await api.chat.completions.create(model="policy", messages=HI, stream=True)
            assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == "Hi"
        retries = claude(gateway, max_retries=1)
        async with retries, retries.messages.stream(model="m", max_tokens=9, messages=HI) as told:
            assert await told.get_final_text() == "Hi"
        assert len(engine.talks) == 4
        code, output = await curl(*curl_chat(gateway.url, {"messages": HI, "stream": True}))
        assert code == 0 and output.startswith(b"HTTP/1.1 50") and b"text/event-stream" not in output


@pytest.mark.parametrize("stream", [False, True])
async def test_case_15_aborted_turn_is_an_error_and_not_a_finish_reason(tmp_path: Path, stream: bool) -> None:
    async def aborted(talk: Talk) -> None:
        if not talk.body.get("stream"):
            await talk.reply({"content": "Hel"}, "abort")
            return
        await talk.head(stream=True)
        await talk.chunk({"content": "Hel"})
        await talk.finish("abort")

    async with against(tmp_path, aborted) as (gateway, _):
        status, data, broken = await ask(gateway, stream=stream)
        assert b'"finish_reason":"abort"' not in data and b"upstream_aborted" in data
        assert (status, broken is None) == ((200, False) if stream else (502, True))


# ---------------------------------------------------------------- stalls


async def stalls_at_once(talk: Talk) -> None:
    await talk.gone.wait()


async def stalls_in_the_middle(talk: Talk) -> None:
    await talk.head(stream=True)
    await talk.chunk({"content": "Hel"})
    await talk.gone.wait()


@pytest.mark.parametrize(
    ("script", "stream", "status"),
    [(stalls_at_once, False, 504), (stalls_at_once, True, 504), (stalls_in_the_middle, True, 200)],
)
async def test_engine_that_stalls_is_given_up_and_told_so(
    tmp_path: Path, script: Script, stream: bool, status: int
) -> None:
    limits = {"gateway": {"firstTokenTimeoutSec": 1, "idleTimeoutSec": 1}}
    async with (
        HostileEngine(script) as engine,
        gateway_process(tmp_path, [engine.url], policyServing=limits) as gateway,
    ):
        got, data, broken = await ask(gateway, stream=stream)
        assert got == status and b'"code":"upstream_timeout"' in data
        assert (broken is None) == (status == 504)
        async with asyncio.timeout(20):
            await engine.talks[0].gone.wait()
        await gateway.settled(dropped={"upstream_error": 1})


async def test_quiet_stream_is_kept_alive_for_every_client(tmp_path: Path) -> None:
    """An engine that thinks for a while: events that say nothing come first, and no client takes them for words."""

    async def thinks(talk: Talk) -> None:
        await asyncio.sleep(15)
        await talk.head(stream=True)
        await talk.chunk({"content": "Hi"})
        await talk.finish()

    async def claude_says(gateway: GatewayProcess) -> str:
        async with claude(gateway) as api, api.messages.stream(model="m", max_tokens=9, messages=HI) as stream:
            return await stream.get_final_text()

    async with against(tmp_path, thinks) as (gateway, _):
        words = curl_chat(gateway.url, {"messages": HI, "stream": True})
        (_, output), text, said = await asyncio.gather(curl(*words), text_of(gateway), claude_says(gateway))
        assert b"\r\n\r\n: ping\n\ndata: {" in output
        assert (text, said) == ("Hi", "Hi")


# ---------------------------------------------------------------- clients that go


@pytest.mark.parametrize("moment", ["before the first token", "in mid-stream", "non-stream"])
async def test_case_3_client_that_goes_ends_the_engines_work(tmp_path: Path, moment: str) -> None:
    async def endless(talk: Talk) -> None:
        if moment == "in mid-stream":
            await talk.head(stream=True)
            await talk.chunk({"content": "Hel"})
        await asyncio.sleep(3600)

    async with against(tmp_path, endless) as (gateway, engine):
        asked = asyncio.create_task(ask(gateway, stream=moment != "non-stream"))
        async with asyncio.timeout(20):
            while not engine.talks:  # noqa: ASYNC110 - the engine has no event for it
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)
        asked.cancel()
        async with asyncio.timeout(2):
            await engine.talks[0].gone.wait()
        stats = await gateway.settled(dropped={"client_gone": 1})
        assert (stats.recorded, stats.waiting.generating) == (1, 0)


# ---------------------------------------------------------------- sessions


@pytest.fixture
async def echo(tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    """A gateway whose engine answers `re: ` and the last words."""
    async with (
        FakeEngine(reply=lambda body: f"re: {body['messages'][-1]['content']}") as engine,
        gateway_process(tmp_path, [engine.url]) as gateway,
    ):
        yield gateway


async def talk_through(api: openai.AsyncOpenAI, topic: str, turns: int = 3) -> None:
    history: list[Any] = []
    for number in range(turns):
        history.append({"role": "user", "content": f"{topic} {number}"})
        reply = await api.chat.completions.create(model="policy", messages=history)
        history.append({"role": "assistant", "content": reply.choices[0].message.content})


async def test_case_12_stock_clients_without_headers_are_grouped_and_kept_apart(echo: GatewayProcess) -> None:
    """Ten anonymous users at once under one key, two of them with the same words."""
    async with client(echo) as api:
        topics = [f"topic {number}" for number in range(9)] + ["topic 0"]
        await asyncio.gather(*(talk_through(api, topic) for topic in topics))
    turns = await echo.judge()
    sessions: dict[str, list[int]] = {}
    for turn in turns:
        sessions.setdefault(turn.session, []).append(turn.turn)
    whole = [session for session, numbers in sessions.items() if sorted(numbers) == [1, 2]]
    # The two that say the same cannot be told apart and may not be mixed up: each turn of theirs is on its own.
    assert len(whole) >= 8
    for turn in turns:
        topic = str(turn.messages[0]["content"]).rpartition(" ")[0]
        assert str(turn.next_state[-1]["content"]).startswith(topic)


async def test_case_13_retry_is_one_turn_and_the_same_words_on_purpose_are_two(echo: GatewayProcess) -> None:
    retry = {"X-Session-Id": "s", "x-stainless-retry-count": "1"}
    await ask(echo, headers={"X-Session-Id": "s"})
    await ask(echo, headers=retry)
    stats = await echo.stats()
    assert (stats.served, stats.recorded, stats.untracked) == (2, 1, {"replaced": 1})
    await ask(echo, headers={"X-Session-Id": "s"})
    assert (await echo.stats()).recorded == 2


async def test_case_13_a_clients_own_retry_after_a_cut_is_one_turn(tmp_path: Path) -> None:
    async def first_fails(talk: Talk) -> None:
        if talk.number == 0:
            await talk.head(stream=False, content_length="100")
            talk.abort()
            return
        await talk.reply({"content": "ok"})

    async with against(tmp_path, first_fails) as (gateway, engine), client(gateway, max_retries=2) as api:
        reply = await api.chat.completions.create(model="policy", messages=HI)
        assert reply.choices[0].message.content == "ok" and len(engine.talks) == 2
        stats = await gateway.stats()
        assert (stats.served, stats.recorded) == (2, 1)


async def test_case_14_two_turns_of_a_session_in_flight_are_both_recorded(tmp_path: Path) -> None:
    async with (
        FakeEngine(reply="Hello", knobs=Knobs(token_delay_sec=0.1)) as engine,
        gateway_process(tmp_path, [engine.url]) as gateway,
    ):
        said: Sequence[Any] = ("one", "two")
        asked = [
            ask(gateway, [{"role": "user", "content": text}], stream=True, headers={"X-Session-Id": "s"})
            for text in said
        ]
        assert [data.count(b"[DONE]") for _, data, _ in await asyncio.gather(*asked)] == [1, 1]
        stats = await gateway.stats()
        assert (stats.recorded, stats.waiting.next_state, stats.dropped) == (2, 2, {})
