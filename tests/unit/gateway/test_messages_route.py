"""POST /v1/messages through a whole gateway with the official anthropic client; text completions; other paths."""

import asyncio
import dataclasses
import json

import anthropic
import openai
import pytest

from tests.fakes.engine import FakeEngine, Knobs
from tests.fakes.hostile_engine import HostileEngine
from tests.unit.gateway.running import config, running
from tests.unit.gateway.test_pause_window import hold, release

HI = [{"role": "user", "content": "Hi"}]
LOOK = {"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {}}}


def client(gateway, **options):
    found = anthropic.AsyncAnthropic(
        **{"base_url": gateway.url, "api_key": "user-key", "max_retries": 0} | options,
        http_client=anthropic.DefaultAsyncHttpxClient(verify=False),
    )
    gateway.clients.append(found)
    return found


async def test_client_gets_a_message_and_the_turn_is_recorded_with_the_engines_ids():
    async with FakeEngine(reply="Hello") as engine, running(engine) as gateway:
        said = await client(gateway).messages.create(model="any", max_tokens=99, messages=HI, system="Be brief.")
        assert (said.content[0].text, said.stop_reason, said.model, said.role) == (
            "Hello",
            "end_turn",
            "policy",
            "assistant",
        )
        assert (said.usage.input_tokens, said.usage.output_tokens) == (len("<system>Be brief.<user>Hi<assistant>"), 6)
        history = [*HI, {"role": "assistant", "content": said.content}, {"role": "user", "content": "more"}]
        await client(gateway).messages.create(model="any", max_tokens=99, messages=history, system="Be brief.")
        (turn,) = await gateway.judge()
        assert turn.next_state == [{"role": "user", "content": "more"}]
        (sample,) = (await gateway.lease(1)).samples
        assert sample.output_ids == [*map(ord, "Hello"), 0]
        assert sample.prompt_ids == [*map(ord, "<system>Be brief.<user>Hi<assistant>")]


async def test_streamed_turns_train_like_the_others_and_the_client_puts_them_together():
    text = '<think>hm ü</think>Y\u2028es<call>look {"at": "ü"}</call><call>go {}</call>'
    knobs = Knobs(byte_by_byte=True)
    async with FakeEngine(reply=text, knobs=knobs) as engine, running(engine) as gateway:
        async with client(gateway).messages.stream(model="m", max_tokens=99, messages=HI, tools=[LOOK]) as stream:
            kinds = [event.type async for event in stream]
            said = await stream.get_final_message()
        assert kinds[0] == "message_start" and kinds[-1] == "message_stop"
        assert [block.type for block in said.content] == ["thinking", "text", "tool_use", "tool_use"]
        thinking, words, look, go = said.content
        assert (thinking.thinking, words.text) == ("hm ü", "Y\u2028es")
        assert (look.name, look.input, go.name, go.input) == ("look", {"at": "ü"}, "go", {})
        assert (said.stop_reason, said.usage.input_tokens) == ("tool_use", len("<user>Hi<assistant>"))
        results = [{"type": "tool_result", "tool_use_id": block.id, "content": "seen"} for block in (look, go)]
        history = [*HI, {"role": "assistant", "content": said.content}, {"role": "user", "content": results}]
        await client(gateway).messages.create(model="m", max_tokens=99, messages=history, tools=[LOOK])
        (turn,) = await gateway.judge()
        assert turn.next_state == [
            {"role": "tool", "tool_call_id": "call_0", "content": "seen"},
            {"role": "tool", "tool_call_id": "call_1", "content": "seen"},
        ]
        (sample,) = (await gateway.lease(1)).samples
        assert len(sample.output_ids) == said.usage.output_tokens
        assert engine.requests[0]["tools"][0]["function"]["name"] == "look"


async def test_a_conversation_may_change_between_the_two_apis():
    """Same key, same words: the chat turn continues what the Messages turn began."""
    async with FakeEngine(reply="Hello") as engine, running(engine) as gateway:
        await client(gateway).messages.create(model="m", max_tokens=9, messages=HI)
        await gateway.chat("Hi", "Hello", "more")
        (turn,) = await gateway.judge()
        assert turn.next_state == [{"role": "user", "content": "more"}]


@pytest.mark.parametrize("headers", [{"x-api-key": "k1"}, {"authorization": "Bearer k1"}])
async def test_both_ways_to_send_a_key_are_the_same_owner(headers):
    async with FakeEngine() as engine, running(engine, api_key="k1") as gateway:
        body = {"model": "m", "max_tokens": 99, "messages": HI}
        async with gateway.http.post(f"{gateway.url}/v1/messages?beta=true", json=body, headers=headers) as response:
            assert response.status == 200
            assert response.headers["request-id"] == response.headers["x-request-id"]
        # The chat turn, with the bearer token, continues it: one owner, one session.
        history = [*HI, {"role": "assistant", "content": "Hello, world."}, {"role": "user", "content": "more"}]
        status, _ = await gateway.post(history, headers={"Authorization": "Bearer k1"})
        assert status == 200 and len(await gateway.judge()) == 1


async def test_wrong_key_and_refusals_are_the_clients_own_error_classes():
    async with FakeEngine(knobs=Knobs(status=400)) as engine, running(engine, api_key="secret") as gateway:
        with pytest.raises(anthropic.AuthenticationError, match="invalid api key"):
            await client(gateway).messages.create(model="m", max_tokens=9, messages=HI)
        authorized = client(gateway, api_key="secret")
        with pytest.raises(anthropic.BadRequestError, match="refused by the fake engine"):
            await authorized.messages.create(model="m", max_tokens=9, messages=HI)
        with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
            await authorized.messages.create(model="m", max_tokens=0, messages=HI)
        await hold(gateway)
        with pytest.raises(anthropic.InternalServerError, match="submission paused for weight update") as refused:
            await authorized.messages.create(model="m", max_tokens=9, messages=HI)
        assert refused.value.response.headers["retry-after"] == "1"
        assert refused.value.body["error"]["type"] == "overloaded_error"
        await release(gateway)


async def test_rate_limit_is_anthropics_too():
    gateway_config = config(policy_training={"rollout_batch_size": 1, "min_batch": 1, "max_head_off_policyness": 0})
    async with FakeEngine() as engine, running(engine, gateway=gateway_config) as gateway:
        await client(gateway).messages.create(model="m", max_tokens=9, messages=HI)
        with pytest.raises(anthropic.RateLimitError, match="maxHeadOffPolicyness"):
            await client(gateway).messages.create(model="m", max_tokens=9, messages=HI)


@pytest.mark.parametrize("knobs", [Knobs(cut_after=3), Knobs(error_after=3)])
async def test_broken_stream_is_an_error_event_and_no_message_stop(knobs):
    async with FakeEngine(reply="Hello", knobs=knobs) as engine, running(engine) as gateway:
        seen = []
        with pytest.raises(anthropic.APIError):
            async with client(gateway).messages.stream(model="m", max_tokens=9, messages=HI) as stream:
                async for event in stream:
                    seen.append(event.type)
        assert "message_stop" not in seen and "text" in seen
        assert (await gateway.stats()).dropped == {"upstream_error": 1}


@pytest.mark.parametrize(
    ("code", "error", "kept"),
    [
        (503, anthropic.InternalServerError, {"upstream_error": 1}),
        (500, anthropic.InternalServerError, {"upstream_error": 1}),
        (400, anthropic.BadRequestError, {}),
    ],
)
async def test_stream_that_fails_before_its_first_word_is_refused_with_a_status(code, error, kept):
    async with FakeEngine(knobs=Knobs(error_after=0, error_code=code)) as engine, running(engine) as gateway:
        with pytest.raises(error, match="the fake engine failed") as refused:
            async with client(gateway).messages.stream(model="m", max_tokens=9, messages=HI) as stream:
                await stream.until_done()
        assert refused.value.status_code == (502 if code == 500 else code)
        assert refused.value.response.headers.get("retry-after") == ("1" if code == 503 else None)
        assert (await gateway.stats()).dropped == kept


async def test_opted_out_side_and_prefilled_messages_are_untracked():
    async with FakeEngine() as engine, running(engine) as gateway:
        create = client(gateway).messages.create
        await create(model="m", max_tokens=9, messages=HI, extra_headers={"X-Openclaw-No-Train": "1"})
        await create(model="m", max_tokens=9, messages=HI, extra_headers={"X-Turn-Type": "side"})
        await create(model="m", max_tokens=9, messages=[*HI, {"role": "assistant", "content": "I"}])
        assert engine.requests[-1]["continue_final_message"] is True
        stats = await gateway.stats()
        assert (stats.recorded, stats.untracked) == (0, {"opt_out": 1, "side": 1, "prefill": 1})


async def test_stop_sequence_is_named():
    async with FakeEngine(reply="one END two") as engine, running(engine) as gateway:
        said = await client(gateway).messages.create(model="m", max_tokens=99, messages=HI, stop_sequences=["END"])
        assert (said.stop_reason, said.stop_sequence) == ("stop_sequence", "END")


async def test_tokens_are_counted_by_the_engine_and_nothing_is_kept():
    async with FakeEngine() as engine, running(engine) as gateway:
        counted = await client(gateway).messages.count_tokens(model="m", messages=HI, system="S", tools=[LOOK])
        assert counted.input_tokens == len("<system>S<user>Hi<assistant>")
        with pytest.raises(anthropic.BadRequestError, match="messages"):
            await client(gateway).messages.count_tokens(model="m", messages=[])
        assert engine.requests == []
        assert (await gateway.stats()).served == 0


async def test_counting_takes_a_place_among_the_requests_and_is_counted_as_one():
    async with FakeEngine() as engine, running(engine) as gateway:
        exchanges = gateway.parts.exchanges
        await client(gateway).messages.count_tokens(model="m", messages=HI)
        assert exchanges.open == 0
        exchanges.limits = dataclasses.replace(exchanges.limits, most=0)
        with pytest.raises(anthropic.InternalServerError, match="as many requests as it bears"):
            await client(gateway).messages.count_tokens(model="m", messages=HI)
        async with gateway.http.get(f"{gateway.url}/metrics") as response:
            asked = 'openclawrl_gateway_requests_total{client="anonymous",path="/v1/messages/count_tokens"} 1.0'
            assert asked in (await response.text()).splitlines()


async def test_client_that_leaves_ends_its_counting():
    async def never(talk):
        await talk.gone.wait()

    async with HostileEngine(never) as engine, running(engine) as gateway:
        asked = asyncio.create_task(client(gateway).messages.count_tokens(model="m", messages=HI))
        async with asyncio.timeout(5):
            while not engine.talks:  # noqa: ASYNC110 - the engine has no event for it
                await asyncio.sleep(0.02)
        assert gateway.parts.exchanges.open == 1
        asked.cancel()
        async with asyncio.timeout(2):
            await engine.talks[0].gone.wait()
            while gateway.parts.exchanges.open:  # noqa: ASYNC110
                await asyncio.sleep(0.02)


async def test_models_are_listed_for_both_clients():
    async with running() as gateway:
        (model,) = (await client(gateway).models.list()).data
        assert (model.id, model.type, model.display_name) == ("policy", "model", "policy")
        assert (await client(gateway).models.retrieve("policy")).created_at == model.created_at
        assert [card.created async for card in await gateway.client().models.list()] == [model.created_at.timestamp()]


async def test_other_methods_and_paths_have_the_shape_of_their_api():
    async with running() as gateway:
        for method, path, status in (("GET", "/v1/messages", 405), ("POST", "/v1/messages/batches", 404)):
            async with gateway.http.request(method, gateway.url + path) as response:
                body = await response.json()
                assert (response.status, body["type"]) == (status, "error")
                assert "/v1/messages/count_tokens" in body["error"]["message"]


async def test_text_completions_pass_and_are_only_counted():
    async with FakeEngine(reply="and on") as engine, running(engine) as gateway:
        api = gateway.client().completions
        reply = await api.create(
            model="any", prompt="on", max_tokens=5, extra_body={"lora_path": "evil", "rid": "evil"}
        )
        assert (reply.choices[0].text, reply.choices[0].finish_reason) == ("and on", "stop")
        stream = await api.create(model="any", prompt="on", stream=True)
        assert "".join([chunk.choices[0].text async for chunk in stream]) == "and on"
        sent = engine.requests[0]
        assert (sent["prompt"], sent["max_tokens"], sent["model"]) == ("on", 5, "policy")
        assert "lora_path" not in sent and sent["rid"] != "evil"
        with pytest.raises(openai.BadRequestError, match="prompt"):
            await api.create(model="any", prompt="")
        stats = await gateway.stats()
        assert (stats.served, stats.untracked) == (2, {"completion": 2})


async def test_request_id_of_the_client_comes_back_unless_it_fits_no_header():
    async with FakeEngine() as engine, running(engine) as gateway:
        body = {"messages": HI}
        for sent, same in (("abc-1", True), ("x" * 200, False)):
            headers = {"x-request-id": sent}
            async with gateway.http.post(f"{gateway.url}/v1/chat/completions", json=body, headers=headers) as response:
                assert (response.headers["x-request-id"] == sent) is same


async def test_anthropic_error_body_is_json_of_that_shape():
    async with running(api_key="k") as gateway:
        async with gateway.http.post(f"{gateway.url}/v1/messages", data=b"{") as response:
            body = json.loads(await response.read())
        assert (response.status, body["error"]["type"]) == (401, "authentication_error")
        assert body["request_id"] == response.headers["request-id"]
