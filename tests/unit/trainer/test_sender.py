"""The sender: who shares a transfer, what is sent, and that a failed one ends the process that holds the group."""

import asyncio
import multiprocessing
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import torch
import torch.distributed as dist
from aiohttp.test_utils import TestServer
from torch.distributed import distributed_c10d as c10d

from openclaw_core.config.policy_training import Lora
from openclaw_core.wire import JoinTransfer, TransferPlan
from openclaw_trainer import broadcast, sender, sender_process
from openclaw_trainer.broadcast import Snapshot, UnknownVersionError
from openclaw_trainer.gathering import GATHER_SEC, Gathering, TooLateError
from openclaw_trainer.sender import Sender
from openclaw_trainer.volume import Volume

WEIGHTS = {
    "a.weight": torch.arange(6.0).view(2, 3),
    "b.weight": torch.ones(4, dtype=torch.bfloat16),
    "c.weight": torch.full((5, 5), 0.5),
}


def _join(version: str, engine: str = "e0", *, engines: int = 1, ranks: int = 1, epoch: int = 3) -> JoinTransfer:
    return JoinTransfer(epoch=epoch, version=version, engine=engine, ranks=ranks, engines=engines, device="cpu")


@pytest.fixture
def version(tmp_path: Path, base: Path) -> str:
    return str(Volume(tmp_path).publish(1, epoch=1, step=1, weights=WEIGHTS, base=base).version())


# ---------------------------------------------------------------- who takes part


@pytest.mark.looptime
async def test_ranks_follow_each_other_and_the_last_engine_ends_the_wait() -> None:
    gathering = Gathering(3, "1-0a1b2c3d")
    waiting = asyncio.create_task(gathering.wait())
    assert gathering.add(_join("1-0a1b2c3d", "e0", engines=2, ranks=4)) == 1
    await asyncio.sleep(GATHER_SEC / 2)
    assert not waiting.done()
    assert gathering.add(_join("1-0a1b2c3d", "e1", engines=2, ranks=2)) == 5
    await asyncio.sleep(0)
    await waiting
    assert gathering.world_size == 7


@pytest.mark.looptime
async def test_missing_engine_is_waited_for_no_longer_and_refused_when_it_comes() -> None:
    gathering = Gathering(3, "1-0a1b2c3d")
    gathering.add(_join("1-0a1b2c3d", "e0", engines=2))
    began = asyncio.get_running_loop().time()
    await gathering.wait()
    assert asyncio.get_running_loop().time() - began == pytest.approx(GATHER_SEC)
    with pytest.raises(TooLateError, match="e1"):
        gathering.add(_join("1-0a1b2c3d", "e1", engines=2))
    assert gathering.world_size == 2


async def test_engine_that_asks_twice_is_one_member() -> None:
    gathering = Gathering(3, "1-0a1b2c3d")
    gathering.add(_join("1-0a1b2c3d", engines=3))
    with pytest.raises(TooLateError):
        gathering.add(_join("1-0a1b2c3d", engines=3))


# ---------------------------------------------------------------- what is sent


def test_snapshot_is_the_version_that_was_asked_for_or_none(tmp_path: Path, base: Path, version: str) -> None:
    found = Snapshot.load(tmp_path, version)
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in WEIGHTS.items())
    for wrong in ("1-0a1b2c3d", "2-0a1b2c3d"):
        with pytest.raises(UnknownVersionError):
            Snapshot.load(tmp_path, wrong)
    adapter = {"base_model.model.q_proj.lora_A.weight": torch.ones(2, 2)}
    manifest = Volume(tmp_path).publish(2, epoch=1, step=1, weights=adapter, base=base, lora=Lora(publish="adapter"))
    with pytest.raises(UnknownVersionError, match="whole weights"):
        Snapshot.load(tmp_path, str(manifest.version()))


def test_buckets_hold_every_tensor_in_order_within_their_size(
    tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcast, "BUCKET_BYTES", 40)
    snapshot = Snapshot.load(tmp_path, version)
    buckets = snapshot.buckets()
    assert [spec.name for bucket in buckets for spec in bucket] == list(snapshot.tensors)
    assert [[spec.name for spec in bucket] for bucket in buckets] == [["a.weight", "b.weight"], ["c.weight"]]
    assert (buckets[0][1].dtype, buckets[0][1].shape) == ("bfloat16", [4])


# ---------------------------------------------------------------- on the wire


def _receive(plan: TransferPlan, out: Path) -> None:
    """What SGLang's `init_custom_process_group` and its receiver do, in a process of its own."""
    torch.set_num_threads(1)
    timeout = timedelta(seconds=20)
    store, _, _ = next(dist.rendezvous(f"tcp://127.0.0.1:{plan.port}", plan.rank_offset, plan.world_size))
    group, _ = c10d._new_process_group_helper(
        plan.world_size,
        plan.rank_offset,
        [],
        c10d.Backend("gloo"),
        dist.PrefixStore(plan.group, store),  # type: ignore[attr-defined]
        group_name=c10d.GroupName(plan.group),
        timeout=timeout,
    )
    c10d._world.pg_group_ranks[group] = {rank: rank for rank in range(plan.world_size)}
    found = {}
    for spec in (spec for bucket in plan.buckets for spec in bucket):
        found[spec.name] = torch.empty(spec.shape, dtype=getattr(torch, spec.dtype))
        dist.broadcast(found[spec.name], src=0, group=group)
    torch.save(found, out)


async def _planned(session: aiohttp.ClientSession, url: str, body: JoinTransfer) -> tuple[int, Any]:
    async with session.post(url, data=body.model_dump_json()) as answer:
        return answer.status, await answer.json()


async def test_two_engines_receive_what_lies_on_the_volume(
    tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "GROUP_SEC", 30.0)  # processes start slowly on a busy machine
    ended: list[bool] = []
    made = Sender(tmp_path, "cpu", lambda: ended.append(True))
    serving = TestServer(sender.build(made))
    await serving.start_server()
    url, fork = str(serving.make_url("/transfers")), multiprocessing.get_context("fork")
    try:
        async with aiohttp.ClientSession() as session:
            joins = [_planned(session, url, _join(version, f"e{n}", engines=2)) for n in range(2)]
            plans = [TransferPlan.model_validate(plan) for _, plan in await asyncio.gather(*joins)]
            assert sorted(plan.rank_offset for plan in plans) == [1, 2] and plans[0].world_size == 3
            outs = [tmp_path / f"received-{n}.pt" for n in range(2)]
            ranks = [fork.Process(target=_receive, args=pair) for pair in zip(plans, outs, strict=True)]
            for rank in ranks:
                rank.start()
            for rank in ranks:
                await asyncio.to_thread(rank.join, 40)
            assert [rank.exitcode for rank in ranks] == [0, 0]
            for out in outs:
                received = torch.load(out)
                assert all(torch.equal(received[name], tensor) for name, tensor in WEIGHTS.items())
            late = await _planned(session, url, _join(version, "e2", engines=2))
            assert late[0] == 409 and "without e2" in late[1]["error"]["message"]
            async with asyncio.timeout(20):
                while made.sent == 0:  # noqa: ASYNC110 - receivers have all before the sender has left the group
                    await asyncio.sleep(0.01)
            assert (await _planned(session, url, _join("9-0a1b2c3d", epoch=4)))[0] == 404
        assert not ended
    finally:
        await serving.close()


async def test_engine_that_never_enters_the_group_ends_the_sender(
    tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end closes the connections that would keep the other engines waiting."""
    monkeypatch.setattr(sender, "GROUP_SEC", 0.5)
    ended = asyncio.Event()
    made = Sender(tmp_path, "cpu", ended.set)
    plan = await made.join(_join(version))
    assert plan.world_size == 2
    with pytest.raises(TooLateError, match="under way"):
        await made.join(_join(version, epoch=4))
    async with asyncio.timeout(20):
        await ended.wait()


async def test_sender_that_ends_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender_process, "FIRST_WAIT_SEC", 0.01)
    count = tmp_path / "starts"
    code = f"import os; open({str(count)!r}, 'a').write(os.environ['OPENCLAW_SENDER_DEVICE'] + ' ')"
    keeping = asyncio.create_task(sender_process.keep_running("cpu", command=("-c", code)))
    async with asyncio.timeout(30):
        while not count.exists() or count.read_text().count("cpu") < 3:  # noqa: ASYNC110 - processes tell nobody
            await asyncio.sleep(0.05)
    assert not keeping.done()
    keeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await keeping


async def test_sender_ends_with_the_trainer(tmp_path: Path) -> None:
    started = tmp_path / "pid"
    code = f"import os, time; open({str(started)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    keeping = asyncio.create_task(sender_process.keep_running("cpu", command=("-c", code)))
    async with asyncio.timeout(30):
        while not started.exists() or not started.read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    keeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await keeping
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)
