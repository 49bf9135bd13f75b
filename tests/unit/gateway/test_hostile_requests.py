"""Whatever stands in a request, its answer has the shape of the API, and a fault of ours quotes nobody."""

import asyncio
import itertools
import json
import logging
from contextlib import AsyncExitStack

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from openclaw_gateway import chat, conversation
from openclaw_gateway.anthropic.face import COUNT_PATH
from openclaw_gateway.errors import ApiError
from openclaw_gateway.public_app import FACES
from tests.fakes.engine import FakeEngine
from tests.fakes.hostile_engine import HostileEngine
from tests.unit.gateway.running import running

HI = [{"role": "user", "content": "hi"}]
CHAT = ("/v1/chat/completions", {"model": "m", "messages": HI})
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLED = {"role": "assistant", "content": "x", "tool_calls": [CALL]}
FULL_CHAT = {
    "model": "m",
    "messages": [{"role": "system", "content": [{"type": "text", "text": "s"}]}, *HI, CALLED, *HI],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": False}}],
    "tool_choice": "auto",
    "metadata": {"user_id": "u"},
    "stream_options": {"include_usage": True},
    "response_format": {"type": "text"},
    "chat_template_kwargs": {"thinking": True},
    "stop": ["x"],
    "logit_bias": {"1": 1},
} | dict.fromkeys(
    ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "n", "max_tokens", "stream"),
)
FULL_CHAT |= dict.fromkeys(("user", "prompt_cache_key", "session_id", "turn_type", "session_done", "logprobs", "seed"))
FULL_CHAT |= dict.fromkeys(("continue_final_message", "parallel_tool_calls", "reasoning_effort", "stop_token_ids"))
FULL_MESSAGES = {
    "model": "m",
    "max_tokens": 9,
    "system": [{"type": "text", "text": "s"}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm"},
                {"type": "tool_use", "id": "c", "name": "f", "input": {"x": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "r"}]},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aa"}},
                {"type": "document", "title": "t", "source": {"type": "text", "data": "d"}},
                {"type": "search_result", "title": "t", "content": [{"type": "text", "text": "r"}]},
                {"type": "tool_reference", "tool_name": "f"},
            ],
        },
    ],
    "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}, "type": "custom"}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": False},
    "thinking": {"type": "enabled"},
    "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": {}}},
    "metadata": {"user_id": "u"},
    "stop_sequences": ["x"],
} | dict.fromkeys(("temperature", "top_p", "top_k", "stream", "session_id", "turn_type", "session_done"))
ROUTES = {
    "/v1/chat/completions": FULL_CHAT,
    "/v1/messages": FULL_MESSAGES,
    COUNT_PATH: FULL_MESSAGES,
    "/v1/completions": {"prompt": "hi"} | dict.fromkeys(("n", "stream", "top_k", "logprobs", "stop", "stream_options")),
}


def nested(levels, inner="x"):
    for level in range(levels):
        inner = {"x": inner} if level % 2 else [inner]
    return inner


def places(value, at=()):
    """Every place in a JSON value."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield (*at, key)
        yield from places(part, (*at, key))


def replaced(value, place, new):
    if not place:
        return new
    whole = dict(value) if isinstance(value, dict) else list(value)
    whole[place[0]] = replaced(whole[place[0]], place[1:], new)
    return whole


LEAVES = (
    some.none()
    | some.booleans()
    | some.integers(-(1 << 63), (1 << 64) - 1)
    | some.floats(allow_nan=False, allow_infinity=False)
    | some.sampled_from([1e30, -1e30, 10**40, "[" * 5000, "9" * 5000, '"\\ud800"', "\0", "system", "assistant"])
    | some.text(some.characters(exclude_categories=["Cs"]), max_size=9)
)
VALUES = some.recursive(
    LEAVES,
    lambda inner: (
        some.lists(inner, max_size=3)
        | some.dictionaries(some.sampled_from(["type", "text", "role", "function", "arguments", "x"]), inner)
    ),
    max_leaves=5,
) | some.sampled_from([nested(levels) for levels in (120, 240, 247, 248, 249, 250, 255, 600)])


def error_of(path, body):
    """The refusal's type; the assertion is that it has one where this API has it."""
    assert body["type"] == "error" if "messages" in path else set(body["error"]) >= {"param", "code"}, body
    return body["error"]["type"], body["error"]["code"]


async def post(gateway, path, body, **headers):
    """(status, body), the latter None of an event stream."""
    async with gateway.http.post(gateway.url + path, data=json.dumps(body).encode(), headers=headers) as response:
        data = await response.read()
        return response.status, None if response.content_type == "text/event-stream" else json.loads(data)


WRONG_KINDS = (None, True, 5, -1, 1.5, 1e30, 10**40, "", "x", "[" * 5000, [], [5], [[]], {}, {"x": 5}, nested(260))


@pytest.mark.parametrize("path", sorted(FACES))
def test_value_of_any_kind_at_any_place_is_read_or_refused(path):
    face = FACES[path]
    for place, value in itertools.product(places(ROUTES[path]), WRONG_KINDS):
        raw = json.dumps(replaced(ROUTES[path], place, value)).encode()
        try:
            request = face.parse({}, raw, default_main=True)
        except ApiError as error:
            assert error.status == 400 and len(orjson.dumps(face.error(error, "id"))) < 3000
            continue
        said = (
            request.outline,
            request.hints(),
            request.modified_logits,
            list(conversation.passages(request.messages)),
        )
        assert said and (request.completion or request.untracked in (None, "n", "prefill", "side"))
        orjson.loads(face.upstream(request, model="m", rid="r", recorded=True))


def test_no_value_at_any_place_of_a_request_is_a_fault_of_ours():
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def begin():
            return await stack.enter_async_context(running(await stack.enter_async_context(FakeEngine(reply="ok"))))

        gateway = runner.run(begin())

        @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
        @given(some.data(), some.sampled_from(sorted(ROUTES)), VALUES, some.booleans())
        def check(data, path, value, side):
            place = data.draw(some.sampled_from(list(places(ROUTES[path]))))
            body = replaced(ROUTES[path], place, value)
            headers = {"X-Turn-Type": "side"} if side else {}
            status, answer = runner.run(post(gateway, path, body, **headers))
            assert status != 500, (place, value, answer)
            if status >= 400:
                error_of(path, answer)

        try:
            check()
        finally:
            runner.run(stack.aclose())


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"messages": [{"role": "assistant", "content": "x", "tool_calls": 5}, *HI]}, 200, ""),
        ({"messages": [{"role": "assistant", "content": "x", "tool_calls": True}, *HI]}, 200, ""),
        ({"tools": 5, "tool_choice": "none"}, 200, ""),
        ({"top_k": 1e30}, 400, "top_k is 1e+30; it must be"),
        ({"top_k": -2}, 400, "top_k is -2; it must be"),
        ({"tools": [{"type": "function", "function": {"parameters": nested(300)}}]}, 400, "250 levels"),
        ({"messages": [{"role": "user", "content": nested(900)}]}, 400, "250 levels"),
        ({"messages": [CALLED | {"tool_calls": [{"function": {"arguments": "[" * 9000}}]}, *HI]}, 200, ""),
    ],
)
async def test_values_of_the_wrong_kind_are_refused_in_words_or_the_engines_matter(fields, status, words):
    async with FakeEngine() as engine, running(engine) as gateway:
        path, body = CHAT
        said, answer = await post(gateway, path, body | fields)
        assert said == status, answer
        if status == 400:
            assert words in answer["error"]["message"]
        stats = await gateway.stats()
        assert (stats.recorded, stats.waiting.next_state) == ((1, 1) if status == 200 else (0, 0))


async def test_retry_count_of_any_length_is_read():
    async with FakeEngine() as engine, running(engine) as gateway:
        path, body = CHAT
        status, _ = await post(gateway, path, body, **{"x-stainless-retry-count": "9" * 5000})
        assert status == 200


def test_arguments_nested_beyond_reading_have_a_chain_of_their_own():
    """The model may write them too."""

    def chain(arguments):
        return conversation.outline(
            [{"role": "assistant", "tool_calls": [{"function": {"arguments": arguments}}]}]
        ).chain

    assert chain("[" * 100_000) != chain("[" * 100_001)
    assert chain("[" * 400 + "]" * 400) == chain("[" * 400 + " " + "]" * 400)


@pytest.mark.parametrize("arguments", ["[" * 9000, "[" * 300 + "]" * 300, '{"x":' * 300 + "1" + "}" * 300])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("stream", [False, True])
async def test_tool_call_of_the_model_reaches_its_client_however_deep(path, stream, arguments):
    async def calls(talk):
        call = CALL | {"function": {"name": "f", "arguments": arguments}}
        if not talk.body.get("stream"):
            await talk.reply({"content": None, "tool_calls": [call]}, "tool_calls")
            return
        await talk.head(stream=True)
        await talk.chunk({"tool_calls": [call | {"index": 0}]})
        await talk.finish("tool_calls", ids=[1, 2])

    async with HostileEngine(calls) as engine, running(engine) as gateway:
        body = {"model": "m", "max_tokens": 9, "messages": HI, "stream": stream}
        async with gateway.http.post(gateway.url + path, data=orjson.dumps(body)) as response:
            data = await response.text()
            assert response.status == 200, data
        assert json.dumps(arguments)[1:-1] in data
        assert (await gateway.stats()).dropped == {"no_ids": 1}


MARKER = "marker-qzxv"


def fails(*_, **__):
    raise ValueError(MARKER)


@pytest.mark.parametrize("where", ["before the engine", "with the engine", "after the answer"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("stream", [False, True])
async def test_fault_of_ours_has_the_apis_shape_and_quotes_nobody(monkeypatch, caplog, where, path, stream):
    async with FakeEngine(reply="ok") as engine, running(engine) as gateway:
        broken = {
            "before the engine": (gateway.parts.store, "arrive"),
            "with the engine": (chat.Upstream, "post"),
            "after the answer": (conversation, "extend"),
        }[where]
        monkeypatch.setattr(*broken, fails)
        caplog.set_level(logging.INFO)
        body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": MARKER}], "stream": stream}
        async with gateway.http.post(gateway.url + path, data=orjson.dumps(body)) as response:
            begun = stream and where == "after the answer"
            assert response.status == (200 if begun else 500)
            if begun:
                with pytest.raises(Exception, match="payload is not completed"):  # nobody takes it for whole
                    data = b""
                    async for part in response.content.iter_any():
                        data += part
                assert b"the gateway failed" in data and b'"error"' in data
            else:
                assert error_of(path, await response.json())[1] == "internal_error"
        logged = "\n".join(caplog.messages) + caplog.text
        assert "ValueError" in logged and "chat.py" in logged
        assert MARKER not in logged
        monkeypatch.undo()
        assert (await gateway.stats()).dropped == ({} if where == "before the engine" else {"upstream_error": 1})
