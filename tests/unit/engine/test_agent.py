"""The sync agent against the fake engine, over HTTP on both sides."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from openclaw_core.versions import BASE, Target, WeightVersion
from openclaw_core.wire import AgentState
from openclaw_engine.agent import Agent, EngineLostError
from openclaw_engine.app import make_app
from openclaw_engine.epochs import EpochFile
from openclaw_engine.manifest import Volume
from openclaw_engine.metrics import Metrics
from openclaw_engine.sglang import Sglang
from openclaw_engine.staging import Stager
from openclaw_engine.transfer import Receiver
from tests.fakes import weight_versions
from tests.fakes.engine import FakeEngine, Knobs

TOKEN = {"Authorization": "Bearer agent-token"}
CHAT = {"messages": [{"role": "user", "content": "hi"}], "return_meta_info": True}


@dataclass
class Rig:
    """An agent, the fake engine under it, and a client of the agent."""

    engine: FakeEngine
    agent: Agent
    root: Path
    session: aiohttp.ClientSession
    url: str
    loops: asyncio.Future[Any]

    async def post(self, path: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> tuple[int, Any]:
        async with self.session.post(self.url + path, json=body, headers=headers or TOKEN) as answer:
            return answer.status, await answer.json()

    async def sync(self, version: WeightVersion | str, epoch: int = 1, deadline: float = 5.0) -> tuple[int, Any]:
        return await self.post("/sync", {"epoch": epoch, "version": str(version), "deadline_sec": deadline})

    async def state(self) -> Any:
        async with self.session.get(self.url + "/state", headers=TOKEN) as answer:
            return await answer.json()

    async def ready(self) -> int:
        async with self.session.get(self.url + "/readyz") as answer:
            return answer.status

    async def chat(self) -> Any:
        async with self.session.post(self.engine.url + "/v1/chat/completions", json=CHAT) as answer:
            return await answer.json()

    def write(self, number: int, content: bytes) -> WeightVersion:
        return weight_versions.write(self.root, number, {"model.safetensors": content, "config.json": b"{}"})

    def point_at(self, version: WeightVersion) -> None:
        (self.root / "target.json").write_text(Target(version=str(version)).model_dump_json())

    def control_calls(self) -> list[str]:
        return [path for path, _ in self.engine.calls if path not in ("/weights_checker", "/freeze_gc")]


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 3.0) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 - the condition lies behind HTTP
            await asyncio.sleep(0.02)


@asynccontextmanager
async def running(
    tmp_path: Path,
    *,
    knobs: Knobs | None = None,
    in_flight: str = "retract",
    start: bool = True,
    kind: type[Agent] = Agent,
    receives: bool = False,
    staging: Path | None = None,
    **engine: Any,
) -> AsyncIterator[Rig]:
    metrics = Metrics()
    async with FakeEngine(admin_key="admin", knobs=knobs, **engine) as fake, aiohttp.ClientSession() as session:
        sglang = Sglang(session, fake.url, "admin")
        agent = kind(
            sglang,
            Volume(tmp_path, adapters=kind is not Agent),
            base_location=str(tmp_path),
            in_flight=in_flight,
            target_file=tmp_path / "target.json",
            epochs=EpochFile(tmp_path / "epoch"),
            metrics=metrics,
            receiver=Receiver(session, sglang, "engine-0", 2, "cpu") if receives else None,
            stager=Stager(staging) if staging is not None else None,
        )
        runner = web.AppRunner(make_app(agent, metrics, "agent-token"), shutdown_timeout=0.5)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        loops = asyncio.ensure_future(asyncio.gather(agent.run(), agent.watch()))
        rig = Rig(fake, agent, tmp_path, session, f"http://127.0.0.1:{runner.addresses[0][1]}", loops)
        try:
            if start:
                await until(lambda: _is(rig.ready(), 200))
            yield rig
        finally:
            loops.cancel()
            with suppress(asyncio.CancelledError, EngineLostError):
                await loops
            await runner.cleanup()


async def _is(value: Awaitable[Any], wanted: Any) -> bool:
    return bool(await value == wanted)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running(tmp_path) as made:
        yield made


async def test_agent_without_a_target_serves_the_base(rig: Rig) -> None:
    state = await rig.state()
    assert state["version"] == str(BASE)
    assert state["phase"] == "serving"
    assert state["sglang_version"] == "0.5.23"
    assert state["target"] is None


async def test_agent_is_not_ready_while_sglang_starts(tmp_path: Path) -> None:
    async with running(tmp_path, knobs=Knobs(not_ready=True), start=False) as rig:
        await asyncio.sleep(0.1)
        assert await rig.ready() == 503
        assert (await rig.state())["phase"] == "starting"
        status, answer = await rig.sync("1-00000000")
        assert (status, answer["error"]["code"]) == (409, "starting")
        rig.engine.knobs.not_ready = False
        await until(lambda: _is(rig.ready(), 200))


async def test_sync_loads_the_version_and_continues(rig: Rig) -> None:
    version = rig.write(1, b"one")
    status, answer = await rig.sync(version)
    assert status == 200
    assert answer["ok"] is True and answer["version"] == str(version)
    assert 0 < answer["update_sec"] <= answer["pause_sec"] < 1
    assert rig.control_calls() == ["/pause_generation", "/update_weights_from_disk", "/continue_generation"]
    assert rig.engine.version == str(version)
    assert rig.engine.model_path == str(rig.root / "v1")
    assert not rig.engine.paused


async def test_sync_to_the_loaded_version_does_not_pause(rig: Rig) -> None:
    version = rig.write(1, b"one")
    await rig.sync(version)
    calls = len(rig.engine.calls)
    status, answer = await rig.sync(version, epoch=2)
    assert (status, answer["ok"], answer["pause_sec"]) == (200, True, 0.0)
    assert len(rig.engine.calls) == calls


async def test_running_turn_survives_a_sync_and_carries_both_versions(rig: Rig) -> None:
    rig.engine.knobs.token_delay_sec = 0.03
    version = rig.write(1, b"one")
    turn = asyncio.create_task(rig.chat())
    await asyncio.sleep(0.1)
    await rig.sync(version)
    choice = (await turn)["choices"][0]
    assert choice["message"]["content"] == "Hello, world."
    spans = choice["meta_info"]["weight_versions"]
    assert [span["version"] for span in spans] == [str(BASE), str(version)]
    assert spans[0]["end"] == spans[1]["start"]


async def test_drain_lets_the_running_turn_end_first(tmp_path: Path) -> None:
    async with running(tmp_path, knobs=Knobs(token_delay_sec=0.02), in_flight="drain") as rig:
        version = rig.write(1, b"one")
        turn = asyncio.create_task(rig.chat())
        await asyncio.sleep(0.1)
        assert (await rig.sync(version))[1]["ok"]
        choice = (await turn)["choices"][0]
        assert choice["meta_info"]["num_retractions"] == 0
        assert [span["version"] for span in choice["meta_info"]["weight_versions"]] == [str(BASE)]


async def test_abort_ends_the_running_turn(tmp_path: Path) -> None:
    async with running(tmp_path, knobs=Knobs(token_delay_sec=0.05), in_flight="abort") as rig:
        version = rig.write(1, b"one")
        turn = asyncio.create_task(rig.chat())
        await asyncio.sleep(0.12)
        await rig.sync(version)
        assert (await turn)["choices"][0]["finish_reason"] == "abort"


async def test_incomplete_version_is_refused_without_a_pause(rig: Rig) -> None:
    version = rig.write(1, b"one")
    (rig.root / "v1" / "model.safetensors").write_bytes(b"On")
    status, answer = await rig.sync(version)
    assert (status, answer["ok"], answer["version"]) == (200, False, str(BASE))
    assert "has 2 bytes" in answer["error"]
    assert rig.control_calls() == []


async def test_prepare_says_whether_a_version_is_complete(rig: Rig) -> None:
    version = rig.write(1, b"one")
    assert (await rig.post("/prepare", {"version": str(version)}))[1]["ready"] is True
    missing = (await rig.post("/prepare", {"version": "9-00000000"}))[1]
    assert missing["ready"] is False and "cannot read" in missing["error"]
    assert rig.control_calls() == []


async def test_failed_update_continues_on_the_old_version(rig: Rig) -> None:
    rig.engine.knobs.update_error = "out of memory"
    version = rig.write(1, b"one")
    _, answer = await rig.sync(version)
    assert (answer["ok"], answer["version"]) == (False, str(BASE))
    assert "out of memory" in answer["error"]
    assert not rig.engine.paused
    assert await rig.ready() == 200
    rig.engine.knobs.update_error = None
    assert (await rig.sync(version, epoch=2))[1]["ok"]


async def test_unflushed_cache_counts_as_success(rig: Rig) -> None:
    rig.engine.knobs.update_dirty = True
    version = rig.write(1, b"one")
    _, answer = await rig.sync(version)
    assert (answer["ok"], answer["version"]) == (True, str(version))


async def test_slow_update_is_cut_at_the_deadline_and_continued(rig: Rig) -> None:
    rig.engine.knobs.update_delay_sec = 0.5
    version = rig.write(1, b"one")
    sync = asyncio.create_task(rig.sync(version, deadline=0.2))
    await asyncio.sleep(0.35)
    assert rig.control_calls()[-1] == "/continue_generation"
    _, answer = await sync
    assert answer["ok"] is False
    assert answer["version"] == str(version), "the update landed after all, and the agent says so"
    assert 0.0 < answer["pause_sec"] < rig.engine.knobs.update_delay_sec


async def test_continue_that_fails_twice_is_tried_again(rig: Rig) -> None:
    rig.engine.knobs.continue_fails = 2
    _, answer = await rig.sync(rig.write(1, b"one"))
    assert answer["ok"] is True
    assert rig.control_calls().count("/continue_generation") == 3
    assert not rig.engine.paused


async def test_update_that_changes_no_weights_ends_the_container(rig: Rig) -> None:
    assert (await rig.sync(rig.write(1, b"one")))[1]["ok"]
    rig.engine.knobs.update_lands_nothing = True
    two = rig.write(2, b"two")
    assert (await rig.sync(two, epoch=2))[1]["ok"], "SGLang said so itself"
    with pytest.raises(EngineLostError, match=f"not those of {two}"):
        await asyncio.wait_for(rig.loops, 2)


async def test_version_with_the_same_weights_is_no_fault(rig: Rig) -> None:
    assert (await rig.sync(rig.write(1, b"one")))[1]["ok"]
    rig.engine.knobs.update_lands_nothing = True
    same = rig.write(2, b"one")
    assert (await rig.sync(same, epoch=2))[1]["ok"]
    assert (await rig.state())["version"] == str(same)


async def test_checksum_is_unknown_until_it_follows_from_the_version(rig: Rig) -> None:
    before = (await rig.state())["checksum"]
    version = rig.write(1, b"one")
    await rig.sync(version)

    async def known() -> bool:
        state = await rig.state()
        assert state["version"] == str(version) and state["checksum"] != before
        return state["checksum"] is not None

    await until(known)


async def test_checksum_is_not_part_of_the_pause(rig: Rig) -> None:
    rig.engine.knobs.checksum_delay_sec = 0.3
    _, answer = await rig.sync(rig.write(1, b"one"))
    assert answer["ok"] and answer["pause_sec"] < 0.3


async def test_wrongly_reported_version_ends_the_container(rig: Rig) -> None:
    rig.engine.knobs.wrong_version = True
    _, answer = await rig.sync(rig.write(1, b"one"))
    assert answer["ok"] is False
    with pytest.raises(EngineLostError):
        await asyncio.wait_for(rig.loops, 2)


async def test_older_epoch_is_refused(rig: Rig) -> None:
    version = rig.write(1, b"one")
    await rig.sync(version, epoch=7)
    status, answer = await rig.sync(BASE, epoch=6)
    assert (status, answer["error"]["code"]) == (409, "stale_epoch")
    assert (await rig.state())["highest_epoch"] == 7


async def test_older_epoch_is_refused_by_the_container_that_comes_after(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        await rig.sync(rig.write(1, b"one"), epoch=5)
    async with running(tmp_path) as rig:
        status, refusal = await rig.sync(rig.write(2, b"two"), epoch=4)
        assert (status, refusal["error"]["code"]) == (409, "stale_epoch")
        assert (await rig.state())["highest_epoch"] == 5


async def test_update_that_only_some_ranks_took_ends_the_container(rig: Rig) -> None:
    rig.engine.knobs.update_mixed = True
    status, answer = await rig.sync(rig.write(1, b"one"))
    assert (status, answer["ok"]) == (200, False)
    assert "only some data-parallel ranks" in answer["error"]
    assert not rig.engine.paused
    with pytest.raises(EngineLostError, match="only some data-parallel ranks"):
        await rig.loops


async def test_engine_is_busy_for_the_operator_while_its_weights_are_summed(rig: Rig) -> None:
    rig.engine.knobs.checksum_delay_sec = 0.3
    await rig.sync(rig.write(1, b"one"))
    assert (await rig.state())["phase"] == "loading"
    await until(lambda: _is(_phase(rig), "serving"))


async def _phase(rig: Rig) -> str:
    return str((await rig.state())["phase"])


async def test_second_sync_is_refused_while_one_runs(rig: Rig) -> None:
    rig.engine.knobs.update_delay_sec = 0.3
    version = rig.write(1, b"one")
    first = asyncio.create_task(rig.sync(version))
    await asyncio.sleep(0.1)
    status, answer = await rig.sync(version, epoch=2)
    assert (status, answer["error"]["code"]) == (409, "busy")
    assert (await rig.state())["phase"] == "syncing"
    assert await rig.ready() == 200
    assert (await first)[1]["ok"]


async def test_sync_goes_on_when_the_caller_hangs_up(rig: Rig) -> None:
    rig.engine.knobs.update_delay_sec = 0.2
    version = rig.write(1, b"one")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(rig.sync(version), 0.1)
    await until(lambda: _is(_loaded(rig), str(version)))
    assert not rig.engine.paused


async def _loaded(rig: Rig) -> str | None:
    version: str | None = (await rig.state())["version"]
    return version


async def test_sync_back_to_the_base_loads_the_base(rig: Rig) -> None:
    await rig.sync(rig.write(1, b"one"))
    _, answer = await rig.sync(BASE, epoch=2)
    assert answer["ok"] is True
    assert rig.engine.model_path == str(rig.root)


async def test_pause_found_without_a_sync_is_ended(rig: Rig) -> None:
    rig.engine.paused = True
    await until(lambda: _is(_paused(rig), False))


async def _paused(rig: Rig) -> bool:
    return rig.engine.paused


async def test_pause_found_at_start_is_ended(tmp_path: Path) -> None:
    async with running(tmp_path, start=False) as rig:
        rig.engine.paused = True
        await until(lambda: _is(rig.ready(), 200))
        assert not rig.engine.paused


async def test_target_that_moved_while_sglang_started_is_loaded_first(tmp_path: Path) -> None:
    async with running(tmp_path, knobs=Knobs(not_ready=True), start=False) as rig:
        version = rig.write(4, b"four")
        rig.point_at(version)
        rig.engine.knobs.not_ready = False
        await until(lambda: _is(rig.ready(), 200))
        assert (await rig.state())["version"] == str(version)


async def test_engine_that_starts_names_what_it_loads_whatever_the_target_says_meanwhile(tmp_path: Path) -> None:
    async with running(tmp_path, knobs=Knobs(not_ready=True), start=False) as rig:
        rig.agent.starts_with("3-0a0a0a0a")
        rig.point_at(rig.write(4, b"four"))
        state = await rig.state()
        assert (state["version"], state["starting"]) == (None, "3-0a0a0a0a")


async def test_engine_that_loads_a_moved_target_names_that_until_it_serves_it(tmp_path: Path) -> None:
    async with running(tmp_path, knobs=Knobs(not_ready=True, update_delay_sec=0.2), start=False) as rig:
        rig.agent.starts_with("3-0a0a0a0a")
        version = rig.write(4, b"four")
        rig.point_at(version)
        rig.engine.knobs.not_ready = False
        await until(lambda: _is(_starting(rig), str(version)))
        assert (await rig.state())["version"] is None
        await until(lambda: _is(rig.ready(), 200))
        state = await rig.state()
        assert (state["version"], state["starting"]) == (str(version), None)


async def _starting(rig: Rig) -> str | None:
    version: str | None = (await rig.state())["starting"]
    return version


def test_state_of_an_agent_that_does_not_say_what_it_starts_with_is_understood() -> None:
    words = {"version": None, "target": None, "ready": False, "paused": False, "highest_epoch": 0, "phase": "starting"}
    assert AgentState.model_validate(words).starting is None


async def test_target_that_is_not_complete_at_start_leaves_the_base_serving(tmp_path: Path) -> None:
    async with running(tmp_path, knobs=Knobs(not_ready=True), start=False) as rig:
        rig.point_at(WeightVersion(number=4, digest8="0a0a0a0a"))
        rig.engine.knobs.not_ready = False
        await until(lambda: _is(rig.ready(), 200))
        state = await rig.state()
        assert (state["version"], state["target"]) == (str(BASE), "4-0a0a0a0a")
        assert "cannot read" in state["error"]


async def test_target_that_moves_later_is_shown_and_not_acted_on(rig: Rig) -> None:
    version = rig.write(1, b"one")
    rig.point_at(version)

    async def shown() -> bool:
        return bool((await rig.state())["target"] == str(version))

    await until(shown)
    assert (await rig.state())["version"] == str(BASE)
    assert rig.control_calls() == []


@pytest.mark.parametrize("path", ["/sync", "/prepare"])
async def test_orders_without_the_token_are_refused(rig: Rig, path: str) -> None:
    status, answer = await rig.post(path, {}, headers={"Authorization": "Bearer wrong"})
    assert (status, answer["error"]["code"]) == (401, "unauthorized")


async def test_order_with_a_wrong_body_is_refused_with_its_fields(rig: Rig) -> None:
    status, answer = await rig.post("/sync", {"epoch": -1})
    assert status == 400
    assert "epoch" in answer["error"]["message"] and "version" in answer["error"]["message"]


async def test_metrics_count_syncs(rig: Rig) -> None:
    await rig.sync(rig.write(1, b"one"))
    async with rig.session.get(rig.url + "/metrics") as answer:
        text = await answer.text()
    assert 'openclawrl_engine_syncs_total{result="ok"} 1.0' in text
    assert "openclawrl_engine_version 1.0" in text
