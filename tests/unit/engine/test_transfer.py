"""Weights from the trainer's sender: all of them, or the volume's, and never a mixture that serves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from openclaw_core.wire import JoinTransfer, TensorSpec, TransferPlan
from openclaw_engine.agent import EngineLostError
from tests.fakes.engine import Knobs
from tests.unit.engine.test_agent import Rig, running

BUCKETS = [[TensorSpec(name=f"layer.{n}", dtype="float32", shape=[2, 3])] for n in range(3)]


class FakeSender:
    """Answers joins as the real one does; `status` refuses them."""

    def __init__(self) -> None:
        self.joins: list[JoinTransfer] = []
        self.status = 200
        self.url = ""

    async def join(self, request: web.Request) -> web.Response:
        self.joins.append(JoinTransfer.model_validate_json(await request.read()))
        if self.status != 200:
            return web.json_response({"error": {"message": "no", "code": "x"}}, status=self.status)
        plan = TransferPlan(group="sync-1", port=1234, backend="gloo", rank_offset=1, world_size=2, buckets=BUCKETS)
        return web.Response(text=plan.model_dump_json(), content_type="application/json")


@asynccontextmanager
async def _sender() -> AsyncIterator[FakeSender]:
    sender, application = FakeSender(), web.Application()
    application.add_routes([web.post("/transfers", sender.join)])
    server = TestServer(application)
    await server.start_server()
    sender.url = str(server.make_url("")).rstrip("/")
    try:
        yield sender
    finally:
        await server.close()


@asynccontextmanager
async def _rig(tmp_path: Path, **knobs: Any) -> AsyncIterator[tuple[Rig, FakeSender]]:
    async with _sender() as sender, running(tmp_path, knobs=Knobs(**knobs), receives=True) as rig:
        yield rig, sender


async def _sync(rig: Rig, sender_url: str | None, number: int, epoch: int = 1, deadline: float = 5.0) -> Any:
    version = rig.write(number, bytes([number]))
    body = {"epoch": epoch, "version": str(version), "deadline_sec": deadline}
    if sender_url is not None:
        body["transfer"] = {"url": sender_url, "engines": 3}
    status, answer = await rig.post("/sync", body)
    assert status == 200
    return answer


async def test_weights_come_bucket_by_bucket_and_the_volume_is_not_read(tmp_path: Path) -> None:
    async with _rig(tmp_path) as (rig, sender):
        answer = await _sync(rig, sender.url, 1)
        assert (answer["ok"], answer["transferred"]) == (True, True)
        (join,) = sender.joins
        assert (join.epoch, join.engine, join.ranks, join.engines, join.device) == (1, "engine-0", 2, 3, "cpu")
        assert rig.control_calls() == [
            "/pause_generation",
            "/init_weights_update_group",
            "/begin_weight_update",
            *["/update_weights_from_distributed"] * 3,
            "/end_weight_update",
            "/destroy_weights_update_group",
            "/continue_generation",
        ]
        joined = next(body for path, body in rig.engine.calls if path == "/init_weights_update_group")
        assert (joined["master_address"], joined["master_port"], joined["rank_offset"]) == ("127.0.0.1", 1234, 1)
        versions = [body["weight_version"] for path, body in rig.engine.calls if path.endswith("_distributed")]
        assert versions == [None, None, answer["version"]], "the version changes with the last bucket"


async def test_sync_without_a_sender_reads_the_volume(tmp_path: Path) -> None:
    async with _rig(tmp_path) as (rig, sender):
        answer = await _sync(rig, None, 1)
        assert (answer["ok"], answer["transferred"], sender.joins) == (True, False, [])


@pytest.mark.parametrize("status", [404, 409, 500])
async def test_refused_engine_reads_the_volume(tmp_path: Path, status: int) -> None:
    async with _rig(tmp_path) as (rig, sender):
        sender.status = status
        answer = await _sync(rig, sender.url, 1)
        assert (answer["ok"], answer["transferred"]) == (True, False)
        assert "/update_weights_from_disk" in rig.control_calls()


async def test_sender_that_is_gone_costs_no_version(tmp_path: Path) -> None:
    async with _rig(tmp_path) as (rig, _):
        answer = await _sync(rig, "http://127.0.0.1:9", 1)
        assert (answer["ok"], answer["transferred"]) == (True, False)


@pytest.mark.parametrize("knobs", [{"group_error": "timed out"}, {"receive_fails_at": 0}, {"receive_fails_at": 2}])
async def test_failure_at_any_point_is_followed_by_the_volume_in_the_same_pause(
    tmp_path: Path, knobs: dict[str, Any]
) -> None:
    async with _rig(tmp_path, **knobs) as (rig, sender):
        answer = await _sync(rig, sender.url, 1)
        assert (answer["ok"], answer["transferred"]) == (True, False)
        calls = rig.control_calls()
        assert calls.count("/pause_generation") == 1
        assert calls[-2:] == ["/update_weights_from_disk", "/continue_generation"]
        assert rig.engine.groups == set()
        rig.engine.knobs.group_error = rig.engine.knobs.receive_fails_at = None
        assert (await _sync(rig, sender.url, 2, epoch=2))["transferred"], "no session or group is left open"


async def test_sender_that_hangs_is_followed_by_the_volume_in_the_same_pause(tmp_path: Path) -> None:
    async with _rig(tmp_path, receive_hangs_sec=0.0) as (rig, sender):
        answer = await _sync(rig, sender.url, 1, deadline=1.0)
        assert (answer["ok"], answer["transferred"]) == (True, False)
        assert answer["pause_sec"] < 1.0
        rig.engine.knobs.receive_hangs_sec = None
        assert (await _sync(rig, sender.url, 2, epoch=2))["transferred"], "no session or group is left open"


async def test_sglang_that_stays_deaf_is_told_to_continue_at_the_deadline_all_the_same(tmp_path: Path) -> None:
    async with _rig(tmp_path, receive_hangs_sec=2.0) as (rig, sender):
        sync = asyncio.create_task(_sync(rig, sender.url, 1, deadline=0.8))
        await asyncio.sleep(1.2)
        assert rig.control_calls()[-1] == "/continue_generation"
        await sync
        assert not rig.engine.paused


async def test_mixture_of_two_versions_never_serves(tmp_path: Path) -> None:
    """The transfer broke in the middle and the volume cannot be read either: only a restart helps."""
    async with _rig(tmp_path, receive_fails_at=1, update_error="disk failed") as (rig, sender):
        answer = await _sync(rig, sender.url, 1)
        assert not answer["ok"]
        with pytest.raises(EngineLostError):
            await rig.loops
