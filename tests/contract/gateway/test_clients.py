"""Stock clients against the gateway process: talk, stream, call tools, be refused, and train without knowing it."""

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from openclaw_core import wire
from tests.contract.gateway.gateway_process import KEY, TOKEN, GatewayProcess, curl, curl_chat, gateway_process
from tests.fakes.engine import FakeEngine, Json

pytestmark = [pytest.mark.contract, pytest.mark.timeout(300)]

ANSWER = "Grüße\u2028, \U0001f600 world"
CALLS = '<think>They ask.</think>Looking.<call>look {"at": "Paris"}</call><call>look {"at": "Rome"}</call>'
LOOK = {"type": "object", "properties": {"at": {"type": "string"}}}


def reply(body: Json) -> str:
    return CALLS if body.get("tools") and body["messages"][-1]["role"] == "user" else ANSWER


@pytest.fixture
def said() -> Callable[[Json], str]:
    return reply


def openai_client(gateway: GatewayProcess, **options: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(**{"base_url": f"{gateway.url}/v1", "api_key": KEY, "max_retries": 2} | options)


def claude(gateway: GatewayProcess, **options: Any) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(**{"base_url": gateway.url, "api_key": KEY, "max_retries": 2} | options)


def langchain(gateway: GatewayProcess, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(model="policy", base_url=f"{gateway.url}/v1", api_key=SecretStr(KEY), **options)


def assert_exact(samples: list[wire.Sample], answers: list[str]) -> None:
    """The recorded ids are the engine's: one per character, and the end token."""
    assert [sample.output_ids for sample in samples] == [[*map(ord, answer), 0] for answer in answers]


@pytest.mark.parametrize("stream", [False, True])
async def test_openai_talks_for_three_turns_and_two_of_them_train(gateway: GatewayProcess, stream: bool) -> None:
    history: list[Any] = []
    async with openai_client(gateway) as client:
        for number in range(3):
            history.append({"role": "user", "content": f"question {number}"})
            if stream:
                text = ""
                async with client.chat.completions.stream(model="policy", messages=history) as events:
                    async for event in events:
                        text += event.delta if event.type == "content.delta" else ""
                    whole = (await events.get_final_completion()).choices[0].message
                assert text == whole.content
            else:
                whole = (await client.chat.completions.create(model="policy", messages=history)).choices[0].message
            assert whole.content == ANSWER
            history.append(whole.model_dump(exclude_none=True))
    assert [turn.next_state[-1]["content"] for turn in await gateway.judge()] == ["question 1", "question 2"]
    assert_exact(await gateway.samples(2), [ANSWER, ANSWER])


@pytest.mark.parametrize("stream", [False, True])
async def test_anthropic_calls_tools_in_parallel_and_brings_the_results(gateway: GatewayProcess, stream: bool) -> None:
    tools: Any = [{"name": "look", "input_schema": LOOK}]
    history: Any = [{"role": "user", "content": "What is there?"}]
    async with claude(gateway) as client:
        if stream:
            async with client.messages.stream(model="m", max_tokens=999, messages=history, tools=tools) as events:
                said = await events.get_final_message()
        else:
            said = await client.messages.create(model="m", max_tokens=999, messages=history, tools=tools)
        assert [block.type for block in said.content] == ["thinking", "text", "tool_use", "tool_use"]
        calls = [block for block in said.content if block.type == "tool_use"]
        assert [call.input for call in calls] == [{"at": "Paris"}, {"at": "Rome"}]
        assert said.stop_reason == "tool_use"
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": "rain"} for call in calls]
        history += [{"role": "assistant", "content": said.content}, {"role": "user", "content": results}]
        final = await client.messages.create(model="m", max_tokens=999, messages=history, tools=tools)
        assert [block.text for block in final.content if block.type == "text"] == [ANSWER]
    (turn,) = await gateway.judge()
    assert [message["role"] for message in turn.next_state] == ["tool", "tool"]
    (sample,) = await gateway.samples(1)
    assert len(sample.output_ids) == said.usage.output_tokens


@pytest.mark.parametrize("stream", [False, True])
async def test_langchain_calls_tools_in_parallel_and_brings_the_results(gateway: GatewayProcess, stream: bool) -> None:
    tool = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": LOOK}}
    model = langchain(gateway).bind_tools([tool])
    history: list[Any] = [HumanMessage("What is there?")]
    if stream:
        chunks = [chunk async for chunk in model.astream(history)]
        said = chunks[0]
        for chunk in chunks[1:]:
            said += chunk
    else:
        said = await model.ainvoke(history)
    assert [(call["name"], call["args"]) for call in said.tool_calls] == [
        ("look", {"at": "Paris"}),
        ("look", {"at": "Rome"}),
    ]
    results = [ToolMessage("rain", tool_call_id=call["id"]) for call in said.tool_calls]
    final = await model.ainvoke([*history, AIMessage(said.content, tool_calls=said.tool_calls), *results])
    assert final.content == ANSWER
    (turn,) = await gateway.judge()
    assert [(message["role"], message["content"]) for message in turn.next_state] == [("tool", "rain")] * 2


async def test_openai_tool_calls_stream_with_the_engines_deltas(gateway: GatewayProcess) -> None:
    tools: Any = [{"type": "function", "function": {"name": "look", "parameters": LOOK}}]
    question: Any = [{"role": "user", "content": "?"}]
    async with openai_client(gateway) as client:
        async with client.chat.completions.stream(model="policy", messages=question, tools=tools) as events:
            message = (await events.get_final_completion()).choices[0].message
        assert message.tool_calls is not None
        assert [(call.id, call.function.arguments) for call in message.tool_calls] == [
            ("call_0", '{"at": "Paris"}'),
            ("call_1", '{"at": "Rome"}'),
        ]
        assert (message.model_extra or {})["reasoning_content"] == "They ask."


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
async def test_curl_sees_each_event_as_the_engine_sent_it(gateway: GatewayProcess, engine: FakeEngine) -> None:
    body = {"model": "policy", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    code, output = await curl(*curl_chat(gateway.url, body))
    head, _, stream = output.partition(b"\r\n\r\n")
    assert code == 0 and b"text/event-stream" in head and b"content-length" not in head.lower()
    assert b"x-request-id:" in head and b"cache-control: no-cache" in head and b"x-accel-buffering: no" in head
    events = stream.split(b"\n\n")
    assert events[-2:] == [b"data: [DONE]", b""]
    texts = [json.loads(event[6:])["choices"][0]["delta"].get("content") or "" for event in events[:-2]]
    assert "".join(texts) == ANSWER
    assert b"sglext" not in stream and b'"logprobs":{' not in stream
    assert engine.requests[0]["return_output_ids_in_sglext"] is True


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
async def test_curl_speaks_anthropic_with_a_query_and_betas(gateway: GatewayProcess) -> None:
    body = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    lines = ("anthropic-version: 2023-06-01", "anthropic-beta: what-ever-2030", f"x-api-key: {KEY}")
    _, output = await curl(*curl_chat(gateway.url, body, "/v1/messages?beta=true", *lines))
    kinds = [line[7:] for line in output.split(b"\n") if line.startswith(b"event: ")]
    assert kinds[0] == b"message_start" and kinds[-2:] == [b"message_delta", b"message_stop"]
    _, output = await curl(gateway.url + "/v1/nothing")
    assert b" 404 " in output and b"/v1/chat/completions" in output


async def test_wrong_key_is_each_clients_own_error(gateway: GatewayProcess) -> None:
    question: Any = [{"role": "user", "content": "Hi"}]
    async with openai_client(gateway, api_key="wrong") as client:
        with pytest.raises(openai.AuthenticationError):
            await client.chat.completions.create(model="policy", messages=question)
    async with claude(gateway, api_key="wrong") as other:
        with pytest.raises(anthropic.AuthenticationError):
            await other.messages.create(model="m", max_tokens=9, messages=question)
    assert KEY not in gateway.log and "wrong" not in gateway.log and TOKEN not in gateway.log


async def pause(gateway: GatewayProcess, epoch: int, seconds: float) -> None:
    await gateway.internal("/internal/paused", wire.Paused(epoch=epoch, lease_sec=seconds))


async def test_short_weight_sync_is_invisible_to_every_client(gateway: GatewayProcess) -> None:
    """503 with Retry-After: the clients come back by themselves."""
    question: Any = [{"role": "user", "content": "Hi"}]

    async def after(epoch: int) -> None:
        await asyncio.sleep(0.5)
        await pause(gateway, epoch, 0)

    async with openai_client(gateway) as client, claude(gateway) as other:
        await pause(gateway, 1, 30)
        release = asyncio.create_task(after(1))
        answer = await client.chat.completions.create(model="policy", messages=question)
        assert answer.choices[0].message.content == ANSWER
        await release
        await pause(gateway, 2, 30)
        release = asyncio.create_task(after(2))
        said = await other.messages.create(model="m", max_tokens=99, messages=question)
        assert said.stop_reason == "end_turn"
        await release
        await pause(gateway, 3, 30)
        release = asyncio.create_task(after(3))
        assert (await langchain(gateway).ainvoke("Hi")).content == ANSWER
        await release


async def test_models_completions_and_token_counts(gateway: GatewayProcess) -> None:
    async with openai_client(gateway) as client, claude(gateway) as other:
        assert [model.id async for model in await client.models.list()] == ["policy"]
        assert (await client.completions.create(model="any", prompt="on")).choices[0].text == ANSWER
        question: Any = [{"role": "user", "content": "Hi"}]
        assert (await other.messages.count_tokens(model="m", messages=question)).input_tokens == 19
    assert (await gateway.stats()).untracked == {"completion": 1}


async def test_stop_ends_with_code_0_and_everything_stored(gateway: GatewayProcess) -> None:
    async with openai_client(gateway) as client:
        question: Any = [{"role": "user", "content": "Hi"}]
        await client.chat.completions.create(model="policy", messages=question)
    assert await gateway.stop() == 0
    assert ANSWER.encode() in gateway.database()


async def test_keys_rotate_while_a_stream_of_their_client_runs(engine: FakeEngine, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "alice").write_text("old-key-of-alice")
    (keys / "bob").write_text("key-of-bob")
    engine.knobs.token_delay_sec = 0.3
    question: Any = [{"role": "user", "content": "Hi"}]
    serving = {"gateway": {"apiKeysSecretRef": {"name": "clients"}}}
    async with gateway_process(tmp_path, [engine.url], keys=keys, policyServing=serving) as gateway:
        alice, bob = (openai_client(gateway, api_key=key) for key in ("old-key-of-alice", "key-of-bob"))
        stream = await alice.chat.completions.create(model="policy", messages=question, stream=True)
        await anext(aiter(stream))
        (keys / "alice").write_text("new-key-of-alice")
        (keys / "bob").unlink()
        for _ in range(200):
            if "client keys: new" in gateway.log:
                break
            await asyncio.sleep(0.1)
        for refused in (alice, bob):
            with pytest.raises(openai.AuthenticationError):
                await refused.models.list()
        text = [chunk.choices[0].delta.content or "" async for chunk in stream]
        assert "".join(text) == ANSWER  # it was let in before
        async with openai_client(gateway, api_key="new-key-of-alice") as again:
            history = [*question, {"role": "assistant", "content": ANSWER}, {"role": "user", "content": "and?"}]
            await again.chat.completions.create(model="policy", messages=history)
        await alice.close()
        await bob.close()
        assert len(await gateway.judge()) == 1  # the same client: the session went on
        assert "key-of" not in gateway.log
