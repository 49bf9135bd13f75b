"""A weights volume that says nothing: a sync ends before its deadline, the agent is free again. In virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import aiohttp
import pytest

from openclaw_core.versions import BASE
from openclaw_core.wire import Prepare, Sync
from openclaw_engine.adapter_agent import AdapterAgent
from openclaw_engine.agent import Agent
from openclaw_engine.epochs import EpochFile
from openclaw_engine.manifest import Volume
from openclaw_engine.metrics import Metrics
from openclaw_engine.sglang import Sglang

VERSION = "1-0a0a0a0a"
pytestmark = [pytest.mark.looptime]


class Serving(Sglang):
    """SGLang on the base model, which nobody may touch."""

    def __init__(self) -> None:
        super().__init__(cast(aiohttp.ClientSession, None), "http://nowhere", "")

    async def is_ready(self) -> bool:
        return True

    async def server_version(self) -> str:
        return "0.5.23"

    async def weight_version(self, timeout: float = 5.0) -> str:
        return str(BASE)

    async def checksum(self, timeout: float) -> str:
        return "c0ffee"

    async def adapters(self, timeout: float = 5.0) -> dict[str, int]:
        return {}

    async def freeze_gc(self) -> None:
        return None


@pytest.fixture(autouse=True)
def hung(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that reads the volume stays in a call to a network file system whose server is gone."""

    async def to_thread(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio, "to_thread", to_thread)


@asynccontextmanager
async def serving(kind: type[Agent], root: Path) -> AsyncIterator[Agent]:
    agent = kind(
        Serving(),
        Volume(root),
        base_location=str(root),
        in_flight="retract",
        target_file=root / "target.json",
        epochs=EpochFile(root / "epoch"),
        metrics=Metrics(),
        clock=asyncio.get_running_loop().time,
    )
    loops = asyncio.ensure_future(asyncio.gather(agent.run(), agent.watch()))
    while not agent.ready:  # noqa: ASYNC110 - the loops tell nobody
        await asyncio.sleep(0.1)
    try:
        yield agent
    finally:
        loops.cancel()
        await asyncio.wait([loops])


@pytest.mark.parametrize("kind", [Agent, AdapterAgent])
async def test_sync_ends_before_its_deadline_without_a_pause_and_leaves_the_agent_free(
    kind: type[Agent], tmp_path: Path
) -> None:
    loop = asyncio.get_running_loop()
    async with serving(kind, tmp_path) as agent:
        began = loop.time()
        synced = await asyncio.wait_for(agent.sync(Sync(epoch=1, version=VERSION, deadline_sec=25.0)), 60)
        assert loop.time() - began < 25
        assert (synced.ok, synced.version, synced.pause_sec) == (False, str(BASE), 0.0)
        assert synced.error == f"the weights volume said nothing about {VERSION} for 22.5 s"
        assert agent.state().phase == "serving"
        assert (await agent.sync(Sync(epoch=2, version=str(BASE), deadline_sec=25.0))).ok


async def test_preparation_ends_as_well(tmp_path: Path) -> None:
    async with serving(Agent, tmp_path) as agent:
        prepared = await asyncio.wait_for(agent.prepare(Prepare(version=VERSION)), 3600)
        assert not prepared.ready and "said nothing about" in str(prepared.error)
