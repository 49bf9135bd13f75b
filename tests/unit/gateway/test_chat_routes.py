"""Chat completions through a whole gateway, with the real openai client and a fake engine."""

import pytest

from tests.fakes.engine import FakeEngine
from tests.unit.gateway.running import config, conversation, running


async def test_reply_has_the_engines_text_and_no_recording_fields():
    async with FakeEngine(reply="Hello") as engine, running(engine) as gateway:
        reply = await gateway.client().chat.completions.create(
            model="anything", messages=[{"role": "user", "content": "Hi"}]
        )
        choice = reply.choices[0]
        assert (choice.message.content, choice.finish_reason, reply.model) == ("Hello", "stop", "policy")
        assert choice.logprobs is None
        assert not {"response_token_ids", "prompt_token_ids", "meta_info"} & set(choice.model_extra or {})
        stats = await gateway.stats()
        assert (stats.served, stats.recorded, stats.waiting.next_state) == (1, 1, 1)


async def test_stream_has_the_engines_text_and_no_recording_fields():
    async with FakeEngine(reply="Hello") as engine, running(engine) as gateway:
        stream = await gateway.client().chat.completions.create(
            model="policy", messages=[{"role": "user", "content": "Hi"}], stream=True
        )
        chunks = [chunk async for chunk in stream]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello"
        assert chunks[-1].choices[0].finish_reason == "stop"
        assert all("sglext" not in (chunk.model_extra or {}) for chunk in chunks)
        assert all(choice.logprobs is None for chunk in chunks for choice in chunk.choices)
        assert (await gateway.stats()).waiting.next_state == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_sample_is_the_engines_own_numbers(stream):
    async with FakeEngine(reply="Hey") as engine, running(engine, gateway=config()) as gateway:
        client = gateway.client()
        first = await client.chat.completions.create(
            model="policy", messages=conversation("Hi"), stream=stream, temperature=0.7
        )
        if stream:
            [chunk async for chunk in first]
        await client.chat.completions.create(model="policy", messages=conversation("Hi", "Hey", "thanks"))
        (turn,) = await gateway.judge(score=1)
        assert turn.next_state == [{"role": "user", "content": "thanks"}]
        assert turn.response["content"] == "Hey"
        (sample,) = (await gateway.lease(1)).samples
        assert sample.output_ids == [*map(ord, "Hey"), 0]
        assert sample.prompt_ids == [*map(ord, "<user>Hi<assistant>")]
        assert sample.rollout_logprobs == [-((token * 7 + at * 3) % 19 + 1) / 10 for at, token in enumerate(sample.output_ids)]
        assert [span.model_dump() for span in sample.spans] == [{"version": "0-00000000", "start": 0, "end": 4}]
        assert sample.sampling.temperature == 0.7
        assert sample.score == 1
