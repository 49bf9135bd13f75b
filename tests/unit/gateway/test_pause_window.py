"""A weight sync as clients and operator see it: 503 while it lasts, an acknowledgement that holds, then service."""

import asyncio

import openai
import pytest

from openclaw_core import wire
from tests.fakes.engine import FakeEngine, Knobs
from tests.unit.gateway.running import config, conversation, running

USER = [{"role": "user", "content": "Hi"}]
V1 = "1-0a1b2c3d"


async def hold(gateway, epoch=1, lease_sec=60.0):
    status, body = await gateway.internal("/internal/paused", wire.Paused(epoch=epoch, lease_sec=lease_sec))
    assert status == 200
    return wire.PausedAck.model_validate(body)


async def release(gateway, epoch=1, version=V1):
    _, body = await gateway.internal("/internal/paused", wire.Paused(epoch=epoch, lease_sec=0, serving_version=version))
    return wire.PausedAck.model_validate(body)


async def test_submissions_are_refused_while_paused_and_served_after():
    async with FakeEngine() as engine, running(engine) as gateway:
        ack = await hold(gateway)
        assert (ack.epoch, ack.pod_uid, ack.paused) == (1, "uid-0", True)
        async with gateway.http.post(f"{gateway.url}/v1/chat/completions", json={"messages": USER}) as response:
            assert response.status == 503
            assert (await response.json())["error"]["message"] == "submission paused for weight update"
            assert response.headers["Retry-After"] == "1"
        status, _ = await gateway.post(USER, headers={"X-Turn-Type": "side"})
        assert status == 503
        assert engine.requests == []
        assert not (await release(gateway)).paused
        await gateway.chat("Hi")
        assert (await gateway.stats()).refused == {"paused": 2}


async def test_pause_is_not_acknowledged_while_a_request_is_still_on_its_way_to_its_engine():
    async with FakeEngine() as engine, running(engine) as gateway:
        departure = gateway.parts.gate.departures.enter()
        status, body = await gateway.internal("/internal/paused", wire.Paused(epoch=1, lease_sec=60))
        assert (status, body["error"]["code"]) == (503, "unsent")
        assert (await gateway.post(USER))[0] == 503  # it is on all the same
        departure.sent()
        assert (await hold(gateway)).epoch == 1


async def test_order_of_checks_is_auth_then_pause_then_body():
    async with FakeEngine() as engine, running(engine, api_key="secret") as gateway:
        await hold(gateway)
        assert (await gateway.post([]))[0] == 401
        headers = {"Authorization": "Bearer secret"}
        assert (await gateway.post([], headers=headers))[0] == 503
        await release(gateway)
        assert (await gateway.post([], headers=headers))[0] == 400


async def test_short_window_is_invisible_to_the_openai_client():
    async with FakeEngine(reply="Hello") as engine, running(engine) as gateway:
        await hold(gateway)
        asyncio.get_running_loop().call_later(0.3, gateway.parts.gate.release, 1, V1)
        reply = await gateway.client(max_retries=2).chat.completions.create(model="p", messages=USER)
        assert reply.choices[0].message.content == "Hello"
        with pytest.raises(openai.InternalServerError):
            await hold(gateway, epoch=2)
            await gateway.client().chat.completions.create(model="p", messages=USER)


async def test_requests_wait_and_none_is_refused_without_the_pause():
    setup = config(policy_serving={"weight_sync_pause": False})
    async with FakeEngine() as engine, running(engine, gateway=setup) as gateway:
        await hold(gateway)
        waiting = [asyncio.create_task(gateway.post(USER, session=f"s{n}")) for n in range(5)]
        await asyncio.sleep(0.2)
        assert engine.requests == []
        await release(gateway)
        assert [status for status, _ in await asyncio.gather(*waiting)] == [200] * 5


async def test_held_requests_are_served_when_the_pause_expires_by_itself():
    setup = config(policy_serving={"weight_sync_pause": False})
    async with FakeEngine() as engine, running(engine, gateway=setup) as gateway:
        await hold(gateway, lease_sec=0.3)
        answers = await asyncio.gather(*(gateway.post(USER, session=f"s{n}") for n in range(5)))
        assert [status for status, _ in answers] == [200] * 5
        assert (await gateway.stats()).refused == {}


async def test_client_that_leaves_while_it_is_held_was_no_turn():
    setup = config(policy_serving={"weight_sync_pause": False})
    async with FakeEngine() as engine, running(engine, gateway=setup) as gateway:
        await hold(gateway)
        held = asyncio.create_task(gateway.post(USER))
        await asyncio.sleep(0.2)
        held.cancel()
        await asyncio.sleep(0.2)
        await release(gateway)
        await gateway.post(USER)
        assert ((await gateway.stats()).served, len(engine.requests)) == (1, 1)


async def test_hold_expires_by_itself():
    async with FakeEngine() as engine, running(engine) as gateway:
        await hold(gateway, lease_sec=0.3)
        assert (await gateway.post(USER))[0] == 503
        await asyncio.sleep(0.35)
        assert (await gateway.post(USER))[0] == 200


async def test_turn_between_admission_and_engine_is_withdrawn_when_the_pause_begins():
    """It was admitted, then waited for an engine; the pause must still keep it from being sent."""
    async with FakeEngine() as engine, running(engine) as gateway:
        (picked,) = gateway.parts.fleet.engines.values()
        engine.knobs.not_ready = True
        async with asyncio.timeout(10):
            while picked.ready:  # a probe on its way may still have seen it ready
                gateway.parts.probes.wake()
                await asyncio.sleep(0.01)
        request = asyncio.create_task(gateway.post(USER))
        async with asyncio.timeout(10):
            while (await gateway.stats()).waiting.generating == 0:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await hold(gateway)
        engine.knobs.not_ready = False
        picked.ready = True
        status, body = await request
        assert (status, body["error"]["code"]) == (503, "paused")
        assert engine.requests == []
        assert (await gateway.stats()).served == 0


async def test_running_stream_goes_on_through_a_sync_and_has_both_versions():
    async with FakeEngine(reply="Hello" * 10, knobs=Knobs(token_delay_sec=0.02)) as engine, running(engine) as gateway:
        stream = await gateway.client(**{"X-Session-Id": "s"}).chat.completions.create(
            model="p", messages=USER, stream=True
        )
        chunks = []
        async for chunk in stream:
            chunks.append(chunk)
            if len(chunks) == 10:
                await hold(gateway)
                await engine._pause({"mode": "retract"})
                engine.version = V1
                await engine._continue({})
                await release(gateway)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert text == "Hello" * 10
        await gateway.post(conversation("Hi", text, "ok"), session="s")
        await gateway.judge()
        (sample,) = (await gateway.lease(1)).samples
        assert [span.version for span in sample.spans] == ["0-00000000", V1]
        assert (sample.spans[0].start, sample.spans[-1].end) == (0, 51)
        assert 5 <= sample.spans[0].end <= 25


async def test_stream_right_after_a_release_is_recorded_under_the_new_version():
    async with FakeEngine(reply="Hi") as engine, running(engine) as gateway:
        await hold(gateway)
        engine.version = V1
        await release(gateway)
        stream = await gateway.client(**{"X-Session-Id": "s"}).chat.completions.create(
            model="p", messages=USER, stream=True
        )
        [chunk async for chunk in stream]
        await gateway.post(conversation("Hi", "Hi", "ok"), session="s")
        await gateway.judge()
        (sample,) = (await gateway.lease(1)).samples
        assert [span.version for span in sample.spans] == [V1]


async def test_acknowledgement_waits_until_what_was_admitted_is_sent():
    async with FakeEngine() as engine, running(engine) as gateway:
        departure = await gateway.parts.gate.depart()
        asking = asyncio.create_task(hold(gateway))
        await asyncio.sleep(0.1)
        assert not asking.done()
        departure.sent()
        assert (await asking).paused


async def test_long_running_reply_does_not_delay_the_acknowledgement():
    async with FakeEngine(knobs=Knobs(hang=True)) as engine, running(engine) as gateway:
        request = asyncio.create_task(gateway.post(USER))
        async with asyncio.timeout(10):
            while not engine.requests:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert gateway.parts.gate.departures.unsent == 0
        await hold(gateway)
        assert not request.done()
        request.cancel()


async def test_older_words_of_the_operator_change_nothing():
    async with running() as gateway:
        await hold(gateway, epoch=5)
        assert (await hold(gateway, epoch=4)).epoch == 5
        assert (await release(gateway, epoch=4)).paused
        assert not (await release(gateway, epoch=5)).paused
        assert not (await hold(gateway, epoch=5)).paused


async def test_state_shows_pause_and_engines():
    async with FakeEngine() as engine, running(engine) as gateway:
        await hold(gateway, epoch=3)
        _, state = await gateway.internal("/state")
        assert (state["paused"], state["epoch"]) == (True, 3)
        assert 50 < state["pause_remaining_sec"] <= 60
        assert [entry["version"] for entry in state["engines"]] == ["0-00000000"]
