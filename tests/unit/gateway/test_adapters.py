"""Versions that are LoRA adapters: named in the request, switched without a refusal, one span from begin to end."""

import asyncio

import pytest

from openclaw_core import wire
from openclaw_gateway.fleet import Engine, Fleet
from openclaw_gateway.forwarding import with_adapter
from tests.fakes.engine import FakeEngine, Knobs
from tests.unit.gateway.running import config, running

BASE, V1, V2 = "0-00000000", "1-0a1b2c3d", "2-0a1b2c3d"
ADAPTERS = config(policy_training={"lora": {"rank": 8, "publish": "adapter"}, "rollout_batch_size": 64})


async def switch(gateway, version, epoch):
    """The operator's word after every engine has the adapter; there is no hold before it."""
    body = wire.Paused(epoch=epoch, lease_sec=0, serving_version=version)
    await gateway.internal("/internal/paused", body)


def load(*engines, version):
    for engine in engines:
        engine.adapters[version] = f"/weights/{version}"


async def spans_of(gateway, turns):
    await gateway.judge()
    samples = (await gateway.lease(turns)).samples
    return {sample.session: [(s.version, s.start, s.end) for s in sample.spans] for sample in samples}


async def test_request_names_the_serving_adapter_and_the_client_sees_the_fixed_model():
    async with FakeEngine(reply="Hey") as engine, running(engine, gateway=ADAPTERS) as gateway:
        load(engine, version=V1)
        await switch(gateway, V1, 1)
        reply = await gateway.chat("Hi")
        assert engine.requests[0]["lora_path"] == V1
        assert (reply["model"], reply["metadata"]["weight_version"]) == ("policy", V1)


async def test_base_needs_no_adapter():
    async with FakeEngine() as engine, running(engine, gateway=ADAPTERS) as gateway:
        await switch(gateway, BASE, 1)
        await gateway.chat("Hi")
        assert "lora_path" not in engine.requests[0]


async def test_whole_weights_are_never_asked_for_by_name():
    async with FakeEngine() as engine, running(engine, gateway=config()) as gateway:
        load(engine, version=V1)
        await switch(gateway, V1, 1)
        await gateway.chat("Hi")
        assert "lora_path" not in engine.requests[0]


@pytest.mark.parametrize("stream", [False, True])
async def test_turn_that_runs_through_a_switch_keeps_its_adapter_as_one_span(stream):
    knobs = Knobs(token_delay_sec=0.02)
    async with FakeEngine(reply="x" * 20, knobs=knobs) as engine, running(engine, gateway=ADAPTERS) as gateway:
        load(engine, version=V1)
        await switch(gateway, V1, 1)
        send = _stream if stream else _whole
        old = asyncio.create_task(send(gateway, "old"))
        async with asyncio.timeout(10):
            while not engine.running:  # noqa: ASYNC110 - the engine tells nobody
                await asyncio.sleep(0.005)
        load(engine, version=V2)
        await switch(gateway, V2, 2)
        assert await send(gateway, "new") == 200 and await old == 200
        assert [request["lora_path"] for request in engine.requests] == [V1, V2]
        assert (await gateway.stats()).refused == {}
        for name in ("old", "new"):
            await gateway.chat("Hi", "x" * 20, "Thanks", session=name)
        await gateway.judge()
        assert await spans_of(gateway, 2) == {"old": [(V1, 0, 21)], "new": [(V2, 0, 21)]}


async def test_engine_without_the_serving_adapter_is_avoided_and_answers_with_its_newest_when_alone():
    async with FakeEngine() as one, FakeEngine() as two, running(one, two, gateway=ADAPTERS) as gateway:
        async with asyncio.timeout(10):
            while len(gateway.parts.fleet.ready()) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        load(one, two, version=V1)
        load(two, version=V2)
        await switch(gateway, V2, 1)
        for number in range(6):
            await gateway.chat("Hi", session=f"s{number}")
        assert one.requests == [] and {request["lora_path"] for request in two.requests} == {V2}
        two.knobs.not_ready = True
        await asyncio.sleep(0)
        gateway.parts.probes.wake()
        async with asyncio.timeout(10):
            while len(gateway.parts.fleet.ready()) > 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await gateway.chat("Hi", session="s9")
        assert one.requests[0]["lora_path"] == V1


async def test_engine_whose_word_came_while_another_was_asked_gets_the_request(monkeypatch):
    async with FakeEngine() as one, FakeEngine() as two, running(one, two, gateway=ADAPTERS) as gateway:
        load(two, version=V2)
        fleet, probes = gateway.parts.fleet, gateway.parts.probes
        session = next(f"s{n}" for n in range(99) if fleet.choose(f"s{n}", version=None).url == one.url)
        other = next(engine for engine in fleet.engines.values() if engine.url == two.url)
        verify = probes.verify

        async def verify_both(engine, **again):
            await verify(other)
            return await verify(engine, **again)

        monkeypatch.setattr(probes, "wake", lambda: None)  # nobody has asked before the request comes
        monkeypatch.setattr(probes, "verify", verify_both)
        await switch(gateway, V2, 1)
        await gateway.chat("Hi", session=session)
        assert one.requests == [] and len(two.requests) == 1


async def test_engine_that_lost_the_adapter_is_asked_again_for_what_it_has():
    async with FakeEngine() as engine, running(engine, gateway=ADAPTERS) as gateway:
        load(engine, version=V1)
        await switch(gateway, V1, 1)
        await gateway.chat("Hi", session="a")
        engine.adapters.clear()
        reply = await gateway.chat("Hi", session="b")
        assert reply["metadata"]["weight_version"] == BASE
        assert [request.get("lora_path") for request in engine.requests] == [V1, V1, None]


async def test_late_word_of_an_older_switch_changes_nothing():
    async with FakeEngine() as engine, running(engine, gateway=ADAPTERS) as gateway:
        load(engine, version=V1)
        load(engine, version=V2)
        await switch(gateway, V2, 2)
        await switch(gateway, V1, 1)
        await gateway.chat("Hi")
        assert engine.requests[0]["lora_path"] == V2


def test_newest_adapter_answers_where_the_wanted_one_is_missing():
    engine = Engine("a:1", version=BASE, adapters=frozenset({"9-0a1b2c3d", "10-0a1b2c3d"}))
    assert engine.answering("9-0a1b2c3d") == "9-0a1b2c3d"
    assert engine.answering(None) == engine.answering("11-0a1b2c3d") == "10-0a1b2c3d"
    assert engine.answering(BASE) == BASE
    assert Engine("a:1", version=BASE).answering("11-0a1b2c3d") == BASE


def test_fleet_prefers_an_engine_that_has_the_version_as_an_adapter():
    fleet = Fleet()
    fleet.set_addresses(["a:1", "b:1", "c:1"])
    for engine in fleet.engines.values():
        engine.ready, engine.version = True, BASE
    fleet.engines["b:1"].adapters = frozenset({V1})
    assert {fleet.choose(f"s{n}", version=V1).address for n in range(20)} == {"b:1"}
    assert len({fleet.choose(f"s{n}", version=BASE).address for n in range(20)}) == 3


def test_adapter_is_added_to_a_body_without_touching_the_rest():
    assert with_adapter(b'{"model":"policy","n":1}', V1) == b'{"model":"policy","n":1,"lora_path":"1-0a1b2c3d"}'


async def _whole(gateway, session):
    return (await gateway.post([{"role": "user", "content": "Hi"}], session=session))[0]


async def _stream(gateway, session):
    body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True}
    headers = {"X-Session-Id": session, "Authorization": "Bearer user-key"}
    url = f"{gateway.url}/v1/chat/completions"
    async with gateway.http.post(url, json=body, headers=headers) as response:
        assert b"[DONE]" in await response.read()
        return response.status
