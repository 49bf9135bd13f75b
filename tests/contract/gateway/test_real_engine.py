"""What only the real SGLang can show: its request model, exact ids by both APIs, work that ends with its client."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import openai
import pytest

from openclaw_core import wire
from openclaw_gateway import forwarding
from openclaw_gateway.anthropic.face import MessagesFace
from tests.contract import engine_pod
from tests.contract.gateway.gateway_process import KEY, GatewayProcess, gateway_process

pytestmark = [pytest.mark.contract, pytest.mark.timeout(900)]

HI: Any = [{"role": "user", "content": "What is the capital of France?"}]
OURS = {"model", "rid", "temperature", "top_p", "top_k", "min_p", "repetition_penalty"} | {
    "return_token_ids",
    "return_prompt_token_ids",
    "return_meta_info",
    "return_input_ids_in_sglext",
    "return_output_ids_in_sglext",
}
NORMALISED = {"reasoning"}
"""What SGLang's model turns into other fields before it looks at its own."""
_ASK = """
import json, sys
from sglang.srt.entrypoints.openai import protocol
models = {name: getattr(protocol, name) for name in ("ChatCompletionRequest", "CompletionRequest", "TokenizeRequest")}
message = {"role": "user", "content": "x"}
asked = protocol.ChatCompletionRequest(model="m", messages=[message], reasoning={"enabled": True})
bodies = json.loads(sys.argv[1])
for name, body in bodies:
    models[name].model_validate(body)
print("FOUND " + json.dumps({
    "fields": {name: sorted(model.model_fields) for name, model in models.items()},
    "thinking": (asked.chat_template_kwargs or {}).get("enable_thinking"),
    "validated": len(bodies),
}))
"""
ANTHROPIC: Any = {
    "model": "m",
    "max_tokens": 9,
    "system": [{"type": "text", "text": "Be brief."}],
    "messages": [
        {"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": "AA=="}}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "Looking."},
                {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": "Paris"}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1"}, {"type": "text", "text": "And?"}]},
    ],
    "tools": [{"name": "look", "input_schema": {"type": "object", "properties": {}}}],
    "stop_sequences": ["END"],
    "top_k": 5,
    "temperature": 0.5,
    "stream": True,
}


def translated() -> list[tuple[str, Any]]:
    """Bodies as the gateway sends them, of requests that use all it translates."""
    choices: list[Any] = [{"type": "auto"}, {"type": "any"}, {"type": "tool", "name": "look"}, {"type": "none"}]
    asked = [ANTHROPIC | {"tool_choice": choice} for choice in choices]
    asked += [ANTHROPIC | {"thinking": {"type": kind}} for kind in ("adaptive", "disabled")]
    asked += [ANTHROPIC | {"output_config": {"effort": effort}} for effort in ("low", "medium", "high", "xhigh", "max")]
    asked.append(ANTHROPIC | {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}})
    face, found = MessagesFace(), []
    for body in asked:
        request = face.parse({}, json.dumps(body).encode(), default_main=True)
        sent = json.loads(face.upstream(request, model="policy", rid="r", recorded=True))
        found += [("ChatCompletionRequest", sent)]
        counted = forwarding.tokenize_body(request.body, model="policy")
        found += [("TokenizeRequest", json.loads(counted))]
    return found


@pytest.fixture(scope="module")
def pod() -> Iterator[engine_pod.EnginePod]:
    with engine_pod.namespace() as space, engine_pod.sglang_alone(space) as found:
        yield found


@pytest.fixture
async def gateway(pod: engine_pod.EnginePod, tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    async with gateway_process(tmp_path, [pod.sglang]) as found:
        yield found


def client(gateway: GatewayProcess) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, max_retries=0)


def claude(gateway: GatewayProcess) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=gateway.url, api_key=KEY, max_retries=0)


def test_every_field_that_is_forwarded_exists_in_sglangs_own_request_models(pod: engine_pod.EnginePod) -> None:
    bodies = translated()
    output = pod.execute("python3", "-c", _ASK, json.dumps(bodies), timeout=300)
    line = next(line for line in output.splitlines() if line.startswith("FOUND "))
    found = json.loads(line.removeprefix("FOUND "))
    fields = {name: set(names) for name, names in found["fields"].items()}
    assert set(forwarding.FORWARDED) - fields["ChatCompletionRequest"] == NORMALISED
    assert OURS - fields["ChatCompletionRequest"] == set()
    assert set(forwarding.FORWARDED_COMPLETION) - fields["CompletionRequest"] == set()
    assert {"model", *forwarding.PROMPT} - fields["TokenizeRequest"] == set()
    assert (found["thinking"], found["validated"]) == (True, len(bodies))
    # What speaks of files, adapters, scheduling and other people's requests is never the client's to say.
    reserved = {
        "lora_path",
        "priority",
        "extra_key",
        "cache_salt",
        "session_params",
        "input_ids",
        "custom_logit_processor",
    }
    reserved |= {"bootstrap_host", "bootstrap_room", "routed_dp_rank", "session_id"}
    assert reserved & fields["ChatCompletionRequest"]
    assert not reserved & {*forwarding.FORWARDED, *forwarding.FORWARDED_COMPLETION}


async def test_turns_of_both_apis_are_recorded_with_the_engines_ids(gateway: GatewayProcess) -> None:
    async with client(gateway) as api, claude(gateway) as other:
        usages = []
        for stream in (False, True):
            session = {"X-Session-Id": f"openai-{stream}"}
            options: Any = {"stream_options": {"include_usage": True}} if stream else {}
            reply: Any = await api.chat.completions.create(
                model="any", messages=HI, stream=stream, max_tokens=12, seed=1, extra_headers=session, **options
            )
            if stream:
                chunks = [chunk async for chunk in reply]
                assert all("sglext" not in (chunk.model_extra or {}) for chunk in chunks)
                usages.append((chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens))
            else:
                assert reply.model == "policy"
                usages.append((reply.usage.prompt_tokens, reply.usage.completion_tokens))
        counted = (await other.messages.count_tokens(model="m", messages=HI)).input_tokens
        said = await other.messages.create(
            model="m", max_tokens=12, messages=HI, extra_headers={"X-Session-Id": "claude"}
        )
        async with other.messages.stream(
            model="m", max_tokens=12, messages=HI, extra_headers={"X-Session-Id": "claude-stream"}
        ) as events:
            streamed = await events.get_final_message()
        for message in (said, streamed):
            cached = message.usage.cache_read_input_tokens or 0
            assert message.usage.input_tokens + cached == counted
            usages.append((counted, message.usage.output_tokens))
    stats = await gateway.settled(recorded=4)
    assert stats.dropped.get("no_ids", 0) == 0
    for name in ("openai-False", "openai-True", "claude", "claude-stream"):
        await _next_state(gateway, name)
    await gateway.judge()
    samples = await gateway.samples(stats.waiting.next_state)
    assert {(len(sample.prompt_ids), len(sample.output_ids)) for sample in samples} <= set(usages)
    assert {tuple(sample.prompt_ids) for sample in samples} == {tuple(samples[0].prompt_ids)}
    for sample in samples:
        assert len(sample.rollout_logprobs) == len(sample.output_ids)
        assert all(value <= 0 for value in sample.rollout_logprobs)
        assert [span.model_dump() for span in sample.spans] == [
            {"version": "0-00000000", "start": 0, "end": len(sample.output_ids)}
        ]


async def _next_state(gateway: GatewayProcess, session: str) -> None:
    """A side remark that closes the session's last turn: any messages after an answer, in its session."""
    body = {"messages": [*HI, {"role": "assistant", "content": "…"}, {"role": "user", "content": "go on"}]}
    headers = {"Authorization": f"Bearer {KEY}", "X-Session-Id": session, "X-Session-Done": "1"}
    async with gateway.http.post(
        f"{gateway.url}/v1/chat/completions", json=body | {"max_tokens": 1}, headers=headers
    ) as response:
        assert response.status == 200, await response.text()


async def test_odd_requests_get_the_engines_words_and_no_500(gateway: GatewayProcess) -> None:
    async with client(gateway) as api:
        with pytest.raises(openai.BadRequestError):
            await api.chat.completions.create(model="m", messages=HI, max_tokens=10_000_000)
        odd: Any = [{"role": "developer", "content": [{"type": "text", "text": "Be brief."}]}, *HI]
        odd += [{"role": "assistant", "content": None, "tool_calls": []}, {"role": "user", "content": "And?"}]
        reply = await api.chat.completions.create(model="m", messages=odd, max_tokens=4, extra_body={"unknown": 1})
        assert reply.choices[0].finish_reason in ("stop", "length")
        done = await api.completions.create(model="m", prompt="Paris is", max_tokens=4)
        assert done.choices[0].finish_reason in ("stop", "length")


async def test_engine_stops_when_the_client_goes(gateway: GatewayProcess, pod: engine_pod.EnginePod) -> None:
    async def running() -> int:
        async with aiohttp.ClientSession() as http, http.get(f"{pod.sglang}/v1/loads?include=core") as response:
            return int((await response.json())["loads"][0]["num_running_reqs"])

    async with client(gateway) as api:
        stream = await api.chat.completions.create(
            model="m", messages=HI, stream=True, max_tokens=4000, extra_body={"logit_bias": None, "min_p": 0.0}
        )
        await anext(aiter(stream))
        await stream.close()
    async with asyncio.timeout(30):
        while await running() > 0:  # noqa: ASYNC110 - an engine has no event for it
            await asyncio.sleep(0.1)
    stats = await gateway.settled()
    assert stats.waiting.generating == 0


async def test_weight_sync_in_the_middle_is_a_pause_for_the_client_and_spans_for_the_trainer(
    gateway: GatewayProcess, pod: engine_pod.EnginePod
) -> None:
    admin = {"Authorization": f"Bearer {engine_pod.ADMIN_KEY}"}
    versions = pod.versions()

    async def control(path: str, **body: Any) -> None:
        async with gateway.http.post(f"{pod.sglang}{path}", json=body, headers=admin) as response:
            assert response.status == 200, await response.text()

    await gateway.internal("/internal/paused", wire.Paused(epoch=1, lease_sec=60))
    await control("/pause_generation", mode="retract")
    await control("/update_weights_from_disk", model_path="/var/lib/openclaw/weights/v1", weight_version=versions["v1"])
    await control("/continue_generation")
    await gateway.internal("/internal/paused", wire.Paused(epoch=1, lease_sec=0, serving_version=versions["v1"]))
    async with client(gateway) as api:
        await api.chat.completions.create(model="m", messages=HI, max_tokens=4, extra_headers={"X-Session-Id": "after"})
    await _next_state(gateway, "after")
    await gateway.judge()
    (sample,) = await gateway.samples(1)
    assert {span.version for span in sample.spans} == {versions["v1"]}
    await control("/update_weights_from_disk", model_path="/var/lib/openclaw/weights/base", weight_version="0-00000000")
