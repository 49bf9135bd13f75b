"""Tokens by client key: a stream is counted as the same request without one, whatever becomes of the turn."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anthropic
import openai
import pytest

from tests.contract.gateway.gateway_process import KEY, GatewayProcess
from tests.fakes.engine import FakeEngine

pytestmark = [pytest.mark.contract, pytest.mark.timeout(300)]

HI: Any = [{"role": "user", "content": "Hi"}]
Ask = Callable[[GatewayProcess, bool], Awaitable[None]]


async def used(gateway: GatewayProcess) -> dict[str, float]:
    """Prompt and completion tokens so far."""
    async with gateway.http.get(f"{gateway.url}/metrics") as response:
        text = await response.text()
    found = re.findall(r'openclawrl_gateway_tokens_total\{client="\w+",kind="(\w+)"\} (\S+)', text)
    return {"prompt": 0.0, "completion": 0.0} | {kind: float(many) for kind, many in found}


def chat(headers: Mapping[str, str] | None = None, messages: Any = HI, **body: Any) -> Ask:
    async def ask(gateway: GatewayProcess, stream: bool) -> None:
        async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEY) as client:
            create = client.chat.completions.create
            found = await create(model="m", messages=messages, stream=stream, extra_headers=headers, **body)
            if stream:
                chunks = [chunk async for chunk in found]
                assert all(chunk.choices and chunk.usage is None for chunk in chunks)  # nobody asked for it
                assert len({choice.index for chunk in chunks for choice in chunk.choices}) == body.get("n", 1)

    return ask


def messages(headers: Mapping[str, str] | None = None) -> Ask:
    async def ask(gateway: GatewayProcess, stream: bool) -> None:
        async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key=KEY, default_headers=headers) as client:
            if stream:
                async with client.messages.stream(model="m", max_tokens=99, messages=HI) as events:
                    said = await events.get_final_message()
            else:
                said = await client.messages.create(model="m", max_tokens=99, messages=HI)
            assert said.usage.output_tokens == len("hello") + 1

    return ask


async def completion(gateway: GatewayProcess, stream: bool) -> None:
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEY) as client:
        found = await client.completions.create(model="m", prompt="Hi", stream=stream)
        if isinstance(found, openai.AsyncStream):
            assert all([chunk.choices async for chunk in found])


KINDS: Mapping[str, Ask] = {
    "main": chat(),
    "side": chat({"X-Turn-Type": "side"}),
    "opted out": chat({"X-Openclaw-No-Train": "1"}),
    "two choices": chat(n=2),
    "two choices, opted out": chat({"X-Openclaw-No-Train": "1"}, n=2),
    "prefill": chat(messages=[*HI, {"role": "assistant", "content": "I"}]),
    "messages": messages(),
    "messages, side": messages({"X-Turn-Type": "side"}),
    "text completion": completion,
}


async def test_stream_counts_what_the_plain_answer_does(gateway: GatewayProcess) -> None:
    for name, ask in KINDS.items():
        counts = []
        for stream in (False, True):
            before = await used(gateway)
            await ask(gateway, stream)
            after = await used(gateway)
            counts.append({kind: after[kind] - before[kind] for kind in after})
        assert counts[0] == counts[1] and all(counts[0].values()), name


async def test_turn_without_ids_is_counted_too(gateway: GatewayProcess, engine: FakeEngine) -> None:
    engine.knobs.no_ids = True
    await chat()(gateway, True)
    assert (await gateway.stats()).dropped == {"no_ids": 1}
    assert await used(gateway) == {"prompt": len("<user>Hi<assistant>"), "completion": len("hello") + 1}


@pytest.mark.parametrize("turn_type", ["main", "side"])
async def test_client_that_asks_is_told_and_another_ones_options_reach_the_engine(
    gateway: GatewayProcess, engine: FakeEngine, turn_type: str
) -> None:
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key=KEY, default_headers={"X-Turn-Type": turn_type}
    ) as client:

        async def chunks(**options: Any) -> list[Any]:
            create = client.chat.completions.create
            return [chunk async for chunk in await create(model="m", messages=HI, stream=True, stream_options=options)]

        asked = await chunks(include_usage=True)
        assert (asked[-1].choices, asked[-1].usage.completion_tokens) == ([], len("hello") + 1)
        assert all(chunk.choices and chunk.usage is None for chunk in asked[:-1])
        each = await chunks(include_usage=False, continuous_usage_stats=True)
        assert all(chunk.choices and chunk.usage for chunk in each[1:])
    assert engine.requests[-1]["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
