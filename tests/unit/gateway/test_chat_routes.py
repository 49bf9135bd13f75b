"""Chat completions through a whole gateway: real HTTP, the real openai client, a fake engine."""

import asyncio
import io
import itertools
import json
import re
from dataclasses import replace

import openai
import pytest

from tests.fakes import engine_replies
from tests.fakes.engine import FakeEngine, Knobs
from tests.fakes.hostile_engine import HostileEngine
from tests.unit.gateway.running import config, conversation, running

USER = [{"role": "user", "content": "Hi"}]


async def read_stream(gateway, messages=USER, *, headers=None, **body):
    """(status, bytes) of a raw streamed request; a broken connection ends the bytes."""
    sent = {"Authorization": "Bearer user-key"} | (headers or {})
    url = f"{gateway.url}/v1/chat/completions"
    async with gateway.http.post(url, json={"messages": messages, "stream": True} | body, headers=sent) as response:
        data = b""
        try:
            async for chunk in response.content.iter_any():
                data += chunk
        except Exception as error:
            return response.status, data, type(error).__name__
        return response.status, data, None


async def until(condition, timeout=5.0):
    """Poll an asynchronous condition of the outside world."""
    async with asyncio.timeout(timeout):
        while not await condition():  # noqa: ASYNC110 - the world has no event for it
            await asyncio.sleep(0.02)


async def test_openai_client_gets_a_reply_without_recording_fields():
    async with FakeEngine(reply="Hello") as engine, running(engine) as gateway:
        reply = await gateway.client().chat.completions.create(model="anything", messages=USER)
        choice = reply.choices[0]
        assert (choice.message.content, choice.finish_reason, reply.model) == ("Hello", "stop", "policy")
        assert choice.logprobs is None
        assert not {"response_token_ids", "prompt_token_ids", "meta_info"} & set(choice.model_extra or {})


async def test_openai_client_gets_a_stream_without_recording_fields():
    async with FakeEngine(reply="Hello") as engine, running(engine) as gateway:
        stream = await gateway.client().chat.completions.create(
            model="policy", messages=USER, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello"
        assert chunks[-1].usage.completion_tokens == 6
        assert all("sglext" not in (chunk.model_extra or {}) for chunk in chunks)
        assert all(choice.logprobs is None for chunk in chunks for choice in chunk.choices)


async def test_stock_openai_client_trains_by_just_talking():
    """No header, streams and replies mixed: turns group into one session and their numbers are the engine's."""
    async with FakeEngine(reply=lambda body: f"answer {len(body['messages'])}") as engine, running(engine) as gateway:
        client, history = gateway.client(), []
        for number, stream in enumerate((True, False, True)):
            history.append({"role": "user", "content": f"question {number}"})
            reply = await client.chat.completions.create(
                model="policy", messages=history, stream=stream, temperature=0.7
            )
            if stream:
                text = "".join([chunk.choices[0].delta.content or "" async for chunk in reply])
                history.append({"role": "assistant", "content": text})
            else:
                history.append(reply.choices[0].message.model_dump())
        judged = await gateway.judge(score=1)
        assert [(turn.turn, turn.next_state[-1]["content"]) for turn in judged] == [
            (1, "question 1"),
            (2, "question 2"),
        ]
        assert len({turn.session for turn in judged}) == 1
        first, _ = (await gateway.lease(2)).samples
        assert first.output_ids == [*map(ord, "answer 1"), 0]
        assert first.prompt_ids == [*map(ord, "<user>question 0<assistant>")]
        assert first.rollout_logprobs == [engine_replies.logprob(t, at) for at, t in enumerate(first.output_ids)]
        assert [span.model_dump() for span in first.spans] == [{"version": "0-00000000", "start": 0, "end": 9}]
        assert (first.sampling.temperature, first.score) == (0.7, 1)


async def test_stream_is_the_engines_bytes_however_they_arrive():
    text = 'ü\u2028 \U0001f600 "logprobs":{}'
    async with FakeEngine(reply=text, knobs=Knobs(byte_by_byte=True)) as engine, running(engine) as gateway:
        status, data, broken = await read_stream(gateway, headers={"X-Turn-Type": "side"})
        assert (status, broken) == (200, None)
        _, recorded, _ = await read_stream(gateway, session_id="s")
        same = [_without_id(event) for event in recorded.split(b"\n\n")]
        assert same == [_without_id(event) for event in data.split(b"\n\n")]
        deltas = [json.loads(event[6:])["choices"][0]["delta"] for event in recorded.split(b"\n\n")[:-2]]
        assert "".join(delta.get("content") or "" for delta in deltas) == text


def _without_id(event):
    """Less what differs between two requests: their id, and the second each of them began in."""
    return re.sub(rb'"(id|created)":("[^"]*"|\d+),', b"", event)


async def test_events_are_not_held_until_the_end():
    async with FakeEngine(reply="Hello", knobs=Knobs(token_delay_sec=0.05)) as engine, running(engine) as gateway:
        stream = await gateway.client().chat.completions.create(model="p", messages=USER, stream=True)
        began = asyncio.get_running_loop().time()
        times = [asyncio.get_running_loop().time() - began async for _ in stream]
        assert times[-1] - times[1] > 0.15


async def test_turn_is_committed_before_its_last_frame():
    async with FakeEngine(reply="Hello") as engine, running(engine) as gateway:
        stream = await gateway.client().chat.completions.create(model="p", messages=USER, stream=True)
        async for chunk in stream:
            if chunk.choices[0].finish_reason:
                break
        assert (await gateway.stats()).waiting.next_state == 1
        await stream.close()


@pytest.mark.parametrize(("header", "reason"), [({}, "n"), ({"X-Openclaw-No-Train": "1"}, "opt_out")])
async def test_two_choices_are_served_whole_in_both_forms(header, reason):
    async with FakeEngine(reply="Hello") as engine, running(engine) as gateway:
        create = gateway.client(**header).chat.completions.create
        reply = await create(model="p", messages=USER, n=2)
        assert [(choice.index, choice.message.content) for choice in reply.choices] == [(0, "Hello"), (1, "Hello more")]
        said, ends = {0: "", 1: ""}, {}
        async for chunk in await create(model="p", messages=USER, n=2, stream=True):
            for choice in chunk.choices:
                said[choice.index] += choice.delta.content or ""
                if choice.finish_reason:
                    ends[choice.index] = choice.finish_reason
        assert (said, ends) == ({0: "Hello", 1: "Hello more"}, {0: "stop", 1: "stop"})
        stats = await gateway.stats()
        assert (stats.recorded, stats.untracked) == (0, {reason: 2})


@pytest.mark.parametrize(("choices", "deltas"), [(1, len("Hello")), (2, len("Hello") + len("Hello more"))])
async def test_opted_out_answer_is_known_before_the_client_hears_its_end(choices, deltas, monkeypatch):
    """A client that goes on from there at once, without the header, stays out."""
    async with FakeEngine(reply="Hello") as engine, running(engine) as gateway:
        known, count = asyncio.Event(), gateway.parts.store.count_untracked

        async def slowly(*arguments):
            await known.wait()
            await count(*arguments)

        monkeypatch.setattr(gateway.parts.store, "count_untracked", slowly)
        body = {"messages": USER, "n": choices, "stream": True}
        url, out = f"{gateway.url}/v1/chat/completions", {"X-Openclaw-No-Train": "1"}
        async with gateway.http.post(url, json=body, headers=out) as response:
            data = b""
            while data.count(b'"delta":{"reasoning_content":null,"content":') < deltas:
                data += await response.content.readany()
            with pytest.raises(TimeoutError):
                while True:
                    data += await asyncio.wait_for(response.content.readany(), 0.2)
            assert data.count(b'"finish_reason":"stop"') == choices - 1 and b"[DONE]" not in data
            known.set()
            data += await response.content.read()
            assert data.count(b'"finish_reason":"stop"') == choices and data.endswith(b"data: [DONE]\n\n")


async def test_logprobs_the_client_asked_for_are_passed_on():
    async with FakeEngine(reply="Hi") as engine, running(engine) as gateway:
        client = gateway.client()
        reply = await client.chat.completions.create(model="p", messages=USER, logprobs=True)
        stream = await client.chat.completions.create(model="p", messages=USER, logprobs=True, stream=True)
        streamed = [
            entry.logprob
            async for chunk in stream
            for choice in chunk.choices
            if choice.logprobs
            for entry in choice.logprobs.content
        ]
        assert [entry.logprob for entry in reply.choices[0].logprobs.content] == streamed
        assert len(streamed) == 3


@pytest.mark.parametrize(("stream", "knob"), [(False, "no_ids"), (True, "no_ids"), (False, "wrong_ids")])
async def test_turn_without_exact_ids_is_served_and_dropped(stream, knob):
    async with FakeEngine(reply="Hi", knobs=Knobs(**{knob: True})) as engine, running(engine) as gateway:
        if stream:
            _, data, _ = await read_stream(gateway)
            assert data.endswith(b"data: [DONE]\n\n")
        else:
            assert (await gateway.chat("Hi"))["choices"][0]["message"]["content"] == "Hi"
        assert (await gateway.stats()).dropped == {"no_ids": 1}


async def test_why_turns_are_dropped_or_untracked():
    async with FakeEngine(reply=lambda body: body["messages"][-1]["content"]) as engine, running(engine) as gateway:
        await gateway.chat("Hi", frequency_penalty=0.5)
        await gateway.chat("")
        await gateway.post(USER, session="s", headers={"X-Session-Done": "1"})
        await gateway.post(USER, headers={"X-Turn-Type": "side"})
        await gateway.post(USER, headers={"X-Openclaw-No-Train": "1"})
        await gateway.chat("Hi", n=2)
        await gateway.chat("Hi", "I think")
        stats = await gateway.stats()
        assert stats.dropped == {"modified_logits": 1, "empty": 1, "final": 1}
        assert stats.untracked == {"side": 1, "opt_out": 1, "n": 1, "prefill": 1}
        assert stats.served == 7


async def test_quickstart_session_is_one_sample_and_one_final_turn():
    async with FakeEngine(reply="Hello") as engine, running(engine) as gateway:
        await gateway.chat("Hi", session="s")
        await gateway.post(
            conversation("Hi", "Hello", "redo"), session="s", headers={"X-Session-Done": "1"}, max_tokens=1
        )
        (turn,) = await gateway.judge(score=-1)
        assert turn.next_state == [{"role": "user", "content": "redo"}]
        stats = await gateway.stats()
        assert (stats.queued, stats.dropped, stats.scores) == (1, {"final": 1}, {"-1": 1})


@pytest.mark.parametrize("stream", [False, True])
async def test_client_that_leaves_aborts_the_engine_and_the_turn(stream):
    async with FakeEngine(reply="Hello" * 100, knobs=Knobs(token_delay_sec=0.05)) as engine, running(engine) as gateway:
        request = asyncio.create_task(read_stream(gateway, stream=stream))
        await until(_is(lambda: engine.running))
        request.cancel()
        await until(_is(lambda: not engine.running), timeout=5.0)

        async def dropped():
            return (await gateway.stats()).dropped == {"client_gone": 1}

        await until(dropped)
        assert next(iter(gateway.parts.fleet.engines.values())).in_flight == 0


async def test_client_that_leaves_before_the_first_token_aborts_too():
    async with FakeEngine(knobs=Knobs(hang=True)) as engine, running(engine) as gateway:
        request = asyncio.create_task(read_stream(gateway))
        await until(_is(lambda: engine.requests))
        request.cancel()

        async def dropped():
            return (await gateway.stats()).dropped == {"client_gone": 1}

        await until(dropped, timeout=5.0)


def _is(condition):
    async def check():
        return bool(condition())

    return check


@pytest.mark.parametrize("knobs", [Knobs(cut_after=3), Knobs(error_after=3)])
async def test_broken_stream_is_an_error_to_the_client_and_no_clean_end(knobs):
    async with FakeEngine(reply="Hello", knobs=knobs) as engine, running(engine) as gateway:
        with pytest.raises(openai.APIError):
            stream = await gateway.client().chat.completions.create(model="p", messages=USER, stream=True)
            [chunk async for chunk in stream]
        status, data, broken = await read_stream(gateway)
        assert status == 200
        assert b'{"error":' in data and b"[DONE]" not in data
        assert broken is not None
        assert (await gateway.stats()).dropped == {"upstream_error": 2}


@pytest.mark.parametrize(
    ("engine_says", "client_gets", "kept"),
    [(500, 502, {"upstream_error": 1}), (503, 503, {"upstream_error": 1}), (400, 400, {}), (413, 413, {})],
)
async def test_engine_refusals_in_openai_shape(engine_says, client_gets, kept):
    """By a status or, of a stream, by an error before its first word: the client sees the same."""
    knobs = Knobs(error_after=0, error_code=engine_says)
    async with FakeEngine(knobs=knobs) as engine, running(engine) as gateway:
        refusals = [await gateway.post(conversation("other"), stream=True)]
        knobs.status = engine_says
        refusals += [await gateway.post(USER, stream=stream) for stream in (False, True)]
        for status, body in refusals:
            assert status == client_gets
            assert set(body["error"]) == {"message", "type", "param", "code"}
            assert "the fake engine" in body["error"]["message"]
        assert (await gateway.stats()).dropped == {reason: 3 * many for reason, many in kept.items()}


async def test_stock_client_gets_over_an_engine_whose_queue_was_full():
    """SGLang answers a stream 200 and then an error frame; clients try again after a status only."""
    knobs = Knobs(error_after=0, error_code=503)
    async with FakeEngine(reply="Hello", knobs=knobs) as engine, running(engine) as gateway:

        async def room():
            await until(_is(lambda: engine.requests))
            knobs.error_after = None

        client, waiting = gateway.client(max_retries=2), asyncio.create_task(room())
        stream = await client.chat.completions.create(model="p", messages=USER, stream=True)
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == "Hello"
        assert len(engine.requests) == 2
        await waiting


async def test_no_engine_is_a_bad_gateway(monkeypatch):
    monkeypatch.setattr("openclaw_gateway.upstream.ENGINE_WAIT_SEC", 0.1)
    async with running(engines=("127.0.0.1:1",)) as gateway:
        status, body = await gateway.post(USER)
        assert (status, body["error"]["code"]) == (502, "no_engine")
        assert (await gateway.stats()).dropped == {"upstream_error": 1}


async def test_aborted_reply_never_reaches_the_client_as_a_finish_reason():
    async with FakeEngine(reply="Hello" * 50, knobs=Knobs(token_delay_sec=0.02)) as engine, running(engine) as gateway:
        request = asyncio.create_task(gateway.post(USER))
        await until(_is(lambda: engine.running))
        for run in engine.running.values():
            run.aborted = True
        status, body = await request
        assert (status, body["error"]["code"]) == (502, "upstream_aborted")


async def test_150_streams_at_once_do_not_stall():
    async with (
        FakeEngine(reply="Hello", knobs=Knobs(token_delay_sec=0.02)) as engine,
        running(engine, gateway=config(policy_training={"rollout_batch_size": 100})) as gateway,
    ):
        streams = [read_stream(gateway, session_id=f"s{n}") for n in range(150)]
        results = await asyncio.wait_for(asyncio.gather(*streams), 10)
        assert all(data.endswith(b"data: [DONE]\n\n") for _, data, _ in results)
        assert (await gateway.stats()).waiting.next_state == 150


async def post_large(gateway, size):
    parts = [{"type": "image_url", "image_url": {"url": "x" * size}}, {"type": "text", "text": "what is it?"}]
    body = io.BytesIO(json.dumps({"messages": [{"role": "user", "content": parts}]}).encode())
    async with gateway.http.post(f"{gateway.url}/v1/chat/completions", data=body) as response:
        await response.read()
        return response.status


async def test_20_mb_body_passes_and_a_larger_one_than_allowed_is_refused(monkeypatch):
    async with FakeEngine(reply="ok") as engine, running(engine) as gateway:
        assert await post_large(gateway, 20_000_000) == 200
        monkeypatch.setattr("openclaw_gateway.asgi.MAX_BODY_BYTES", 1 << 20)
        assert await post_large(gateway, 2 << 20) == 413


async def test_connection_the_engine_closed_is_tried_once_more():
    async with FakeEngine(reply="ok") as engine, running(engine) as gateway:
        await gateway.chat("Hi")
        # The engine restarts: every pooled connection is dead, its port is the same.
        port = engine.port
        await engine.__aexit__()
        async with FakeEngine(reply="back", port=port):
            assert (await gateway.chat("Hi again"))["choices"][0]["message"]["content"] == "back"


async def test_wrong_or_missing_key_is_refused_before_anything_else():
    async with FakeEngine() as engine, running(engine, api_key="secret") as gateway:
        with pytest.raises(openai.AuthenticationError, match="invalid api key"):
            await gateway.client(key="wrong").chat.completions.create(model="p", messages=USER)
        status, body = await gateway.post([], headers={"Authorization": ""})
        assert (status, body["error"]["message"]) == (401, "missing bearer token")
        await gateway.client(key="secret").chat.completions.create(model="p", messages=USER)
        async with gateway.http.get(f"{gateway.url}/v1/models") as response:
            assert response.status == 401
        async with gateway.http.get(f"{gateway.url}/healthz") as response:
            assert response.status == 200


@pytest.mark.parametrize("name", ["a\r\nx-evil: 1", "größe \u2028", "x" * 256])
async def test_session_of_any_name_is_served_and_writes_no_header_of_its_own(name):
    async with FakeEngine() as engine, running(engine) as gateway:
        url = f"{gateway.url}/v1/chat/completions"
        async with gateway.http.post(url, json={"messages": USER, "session_id": name}) as response:
            assert response.status == 200
            assert "x-evil" not in response.headers
            assert response.headers.get("x-session-id") in (None, name)


async def test_models_show_the_fixed_name_whatever_the_engine_calls_itself():
    async with FakeEngine() as engine, running(engine) as gateway:
        engine.served_name = "/weights/v7"
        client = gateway.client()
        assert [model.id async for model in await client.models.list()] == ["policy"]
        assert (await client.models.retrieve("policy")).owned_by == "openclaw"
        with pytest.raises(openai.NotFoundError, match="'policy'"):
            await client.models.retrieve("gpt-4")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("POST", "/v1/embeddings", 404), ("GET", "/v1/chat/completions", 405), ("POST", "/v1/models", 405)],
)
async def test_other_paths_name_what_exists(method, path, status):
    async with running() as gateway, gateway.http.request(method, gateway.url + path) as response:
        error = (await response.json())["error"]
        assert response.status == status
        assert "/v1/chat/completions" in error["message"] and error["type"] == "invalid_request_error"


async def test_metrics_show_turns_and_refusals():
    async with FakeEngine() as engine, running(engine) as gateway:
        await gateway.chat("Hi")
        await gateway.post([])
        async with gateway.http.get(f"{gateway.url}/metrics") as response:
            text = await response.text()
        assert 'openclawrl_turns{state="next_state"} 1.0' in text
        assert 'openclawrl_gateway_refused_total{code="invalid_value"} 1.0' in text


@pytest.mark.parametrize("stream", [False, True])
async def test_engine_that_refuses_work_passes_the_turn_on_once(stream):
    """Its queue is full: nothing was generated, so the other engine is asked; the client sees no error."""
    async with FakeEngine(knobs=Knobs(status=503)) as full, FakeEngine() as idle, running(full, idle) as gateway:
        for number in range(8):
            status, data, _ = await read_stream(gateway, session_id=f"s{number}", stream=stream)
            assert status == 200, data
        assert len(idle.requests) == 8 and full.requests
        assert (await gateway.stats()).waiting.next_state == 8


async def breaks_off(talk):
    await talk.head(stream=talk.body["stream"], content_length="999")
    await talk.chunk({"content": "Hel"})
    talk.abort()


async def falls_silent(talk):
    await talk.gone.wait()


async def says_500(talk):
    await talk.send(b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n")


async def says_nothing_of_a_completion(talk):
    await talk.head(stream=False, content_length="2")
    await talk.send(b"{}")


async def says_it_aborted(talk):
    await talk.reply({"content": "Hel"}, "abort")


@pytest.mark.parametrize(
    ("stream", "failing"),
    [
        (True, breaks_off),
        (True, falls_silent),
        (False, says_500),
        (False, breaks_off),
        (False, says_nothing_of_a_completion),
        (False, says_it_aborted),
        (False, falls_silent),
    ],
)
async def test_engine_that_fails_every_turn_is_left_alone_after_five(monkeypatch, stream, failing):
    monkeypatch.setattr("openclaw_gateway.exchanges.LOOK_EVERY_SEC", 0.02)
    async with HostileEngine(failing) as bad, FakeEngine() as good, running(bad, good) as gateway:
        limits = replace(gateway.parts.exchanges.limits, first_token_sec=0.1, idle_sec=0.1)
        gateway.parts.exchanges.limits = limits
        for number in range(40):
            await read_stream(gateway, session_id=f"s{number}", stream=stream)
        assert len(bad.talks) == 5
        assert len(good.requests) == 35
        assert (await gateway.stats()).dropped == {"upstream_error": 5}


async def test_engine_that_a_weight_sync_makes_abort_its_turns_is_not_left_alone():
    epochs = itertools.count(1)

    async def aborts(talk):
        gateway.parts.gate.hold(epoch := next(epochs), 9.0)
        gateway.parts.gate.release(epoch, None)
        await talk.reply({"content": "Hel"}, "abort")

    async with HostileEngine(aborts) as engine, running(engine) as gateway:
        for _ in range(6):
            status, body = await gateway.post(USER)
            assert (status, body["error"]["code"]) == (502, "upstream_aborted")
        (seen,) = gateway.parts.fleet.engines.values()
        assert len(engine.talks) == 6 and not seen.ejected_until


async def test_full_engines_are_a_503_and_no_turn(monkeypatch):
    monkeypatch.setattr("openclaw_gateway.upstream.ENGINE_WAIT_SEC", 0.2)
    one_at_once = config(policy_serving={"gateway": {"max_in_flight_per_engine": 1}})
    async with FakeEngine(knobs=Knobs(hang=True)) as engine, running(engine, gateway=one_at_once) as gateway:
        first = asyncio.create_task(gateway.post(USER))
        await until(_is(lambda: engine.requests))
        status, body = await gateway.post(conversation("other"))
        assert (status, body["error"]["code"]) == (503, "engines_busy")
        assert len(engine.requests) == 1
        stats = await gateway.stats()
        assert (stats.waiting.generating, stats.dropped) == (1, {})
        first.cancel()
