"""The sync agent with LoRA adapters, against the fake engine: beside each other, without a pause, gone when unused."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from openclaw_core.versions import BASE, WeightVersion
from openclaw_engine.adapter_agent import AdapterAgent
from tests.fakes import weight_versions
from tests.fakes.engine import Knobs
from tests.unit.engine.test_agent import CHAT, Rig, running, until

ADAPTER = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"x"}


def write(rig: Rig, number: int) -> WeightVersion:
    return weight_versions.write(rig.root, number, ADAPTER)


@pytest.fixture
async def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    monkeypatch.setattr("openclaw_engine.agent._WATCH_SEC", 0.02)
    async with running(tmp_path, kind=AdapterAgent) as made:
        yield made


async def _retain(rig: Rig, *versions: WeightVersion) -> Any:
    status, state = await rig.post("/retain", {"versions": [str(version) for version in versions]})
    assert status == 200
    return state


async def _chat(rig: Rig, session: aiohttp.ClientSession, version: WeightVersion) -> int:
    body = CHAT | {"lora_path": str(version), "max_tokens": 5}
    async with session.post(rig.engine.url + "/v1/chat/completions", json=body) as answer:
        return answer.status


async def test_sync_loads_the_adapter_beside_the_old_one_without_a_pause(rig: Rig) -> None:
    one, two = write(rig, 1), write(rig, 2)
    for epoch, version in enumerate((one, two)):
        status, answer = await rig.sync(version, epoch)
        assert (status, answer["ok"], answer["version"], answer["pause_sec"]) == (200, True, str(version), 0)
    assert rig.engine.adapters == {str(one): str(rig.root / "v1"), str(two): str(rig.root / "v2")}
    assert rig.control_calls() == ["/load_lora_adapter"] * 2
    state = await rig.state()
    assert (state["version"], state["adapters"], state["paused"]) == (str(two), sorted([str(one), str(two)]), False)


async def test_engine_without_an_adapter_serves_the_base_and_can_go_back_to_it(rig: Rig) -> None:
    assert (await rig.state())["version"] == str(BASE)
    await rig.sync(write(rig, 1), 1)
    _, answer = await rig.sync(BASE, 2)
    assert (answer["ok"], answer["version"]) == (True, str(BASE))


async def test_unwanted_adapter_goes_when_its_last_request_is_done_and_holds_up_no_load(rig: Rig) -> None:
    one, two, three = (write(rig, number) for number in (1, 2, 3))
    await rig.sync(one, 1)
    rig.engine.knobs.token_delay_sec = 0.1
    async with aiohttp.ClientSession() as session:
        stream = asyncio.create_task(_chat(rig, session, one))
        await until(lambda: _running(rig))
        await rig.sync(two, 2)
        await _retain(rig, two)
        await asyncio.sleep(0.1)
        assert str(one) in rig.engine.adapters, "a request still uses it"
        assert (await rig.sync(three, 3))[1]["ok"] and not stream.done()
        await _retain(rig, two)
        assert await stream == 200
    await until(lambda: _adapters_are(rig, two, three))


async def test_nothing_is_unloaded_before_the_operator_said_what_may_stay(rig: Rig) -> None:
    one, two = write(rig, 1), write(rig, 2)
    await rig.sync(one, 1)
    await rig.sync(two, 2)
    await asyncio.sleep(0.15)
    assert len(rig.engine.adapters) == 2
    await _retain(rig)
    await until(lambda: _adapters_are(rig, two))


async def test_operators_last_word_holds_on_while_new_versions_come_and_spares_those_served_since(rig: Rig) -> None:
    one, two, three, four = (write(rig, number) for number in (1, 2, 3, 4))
    rig.engine.knobs.token_delay_sec = 0.1
    await rig.sync(one, 1)
    async with aiohttp.ClientSession() as session:
        stream = asyncio.create_task(_chat(rig, session, one))
        await until(lambda: _running(rig))
        await rig.sync(two, 2)
        await _retain(rig, two)
        await rig.sync(three, 3)
        await rig.sync(four, 4)
        assert await stream == 200
    await until(lambda: _adapters_are(rig, two, three, four))


async def test_version_it_has_already_is_its_own_again_without_loading(rig: Rig) -> None:
    one, two = write(rig, 1), write(rig, 2)
    for epoch, version in enumerate((one, two, one)):
        assert (await rig.sync(version, epoch))[1]["version"] == str(version)
    assert rig.control_calls() == ["/load_lora_adapter"] * 2


async def test_refused_adapter_leaves_the_old_one_serving(rig: Rig) -> None:
    one, two = write(rig, 1), write(rig, 2)
    await rig.sync(one, 1)
    rig.engine.knobs.adapter_error = "rank 64 is incompatible with the memory pool"
    _, answer = await rig.sync(two, 2)
    assert (answer["ok"], answer["version"]) == (False, str(one)) and "rank 64" in answer["error"]
    assert (await rig.state())["error"] == answer["error"]


async def test_whole_weights_are_refused_by_name(rig: Rig) -> None:
    whole = weight_versions.write(rig.root, 1, {"model.safetensors": b"x", "config.json": b"{}"})
    _, answer = await rig.sync(whole, 1)
    assert not answer["ok"] and "holds whole weights" in answer["error"] and "lora.publish" in answer["error"]
    _, prepared = await rig.post("/prepare", {"version": str(whole)})
    assert not prepared["ready"]
    assert rig.engine.adapters == {}


async def test_adapter_is_refused_where_whole_weights_are_served(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        _, answer = await rig.sync(write(rig, 1), 1)
        assert not answer["ok"] and "holds a LoRA adapter" in answer["error"]
        assert rig.control_calls() == []


async def test_load_that_outlasts_the_deadline_is_given_up(tmp_path: Path) -> None:
    async with running(tmp_path, kind=AdapterAgent, knobs=Knobs(adapter_delay_sec=0.5)) as rig:
        _, answer = await rig.sync(write(rig, 1), 1, deadline=0.1)
        assert not answer["ok"] and "did not answer" in answer["error"]
        assert answer["version"] == str(BASE)


async def test_start_loads_the_target_before_it_is_ready(tmp_path: Path) -> None:
    version = weight_versions.write(tmp_path, 4, ADAPTER)
    (tmp_path / "target.json").write_text(f'{{"version": "{version}"}}')
    async with running(tmp_path, kind=AdapterAgent) as rig:
        state = await rig.state()
        assert (state["version"], state["adapters"]) == (str(version), [str(version)])
        assert state["checksum"] == rig.engine.checksum


async def _running(rig: Rig) -> bool:
    return bool(rig.engine.running)


async def _adapters_are(rig: Rig, *versions: WeightVersion) -> bool:
    return set(rig.engine.adapters) == {str(version) for version in versions}
