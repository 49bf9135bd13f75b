"""Engines leave the rotation and come back by what probes see of them; clients are served by the others meanwhile."""

import asyncio

import aiohttp
import pytest

from openclaw_gateway import fleet, probes
from tests.fakes.engine import FakeEngine, Knobs
from tests.unit.gateway.running import conversation, running

SIDE = {"X-Turn-Type": "side"}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(probes, "EVERY_SEC", 0.05)
    monkeypatch.setattr(probes, "_TIMEOUT", aiohttp.ClientTimeout(total=0.3))
    monkeypatch.setattr(fleet, "EJECTED_MOST_SEC", 3.0)


async def asked(gateway, engine, many=40):
    """Statuses of that many sessions' turns, and how many of them that engine got."""
    before = len(engine.requests)
    posts = [gateway.post(conversation("Hi"), session=f"s{number}", headers=SIDE) for number in range(many)]
    statuses = {status for status, _ in await asyncio.gather(*posts)}
    return statuses, len(engine.requests) - before


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - probes have no event for it
            await asyncio.sleep(0.02)


async def test_engine_whose_probe_hangs_leaves_the_rotation_and_returns():
    async with FakeEngine() as stuck, FakeEngine() as other, running(stuck, other) as gateway:
        engine = gateway.parts.fleet.engines[stuck.url.removeprefix("http://")]
        assert (await asked(gateway, stuck))[1] > 0
        stuck.knobs.ready_hangs = True
        await until(lambda: not engine.ready)
        assert await asked(gateway, stuck) == ({200}, 0)
        stuck.knobs.ready_hangs = False
        await until(lambda: engine.ready)
        assert (await asked(gateway, stuck))[1] > 0


async def test_engine_whose_first_probe_hangs_gets_no_new_turns_long_before_it_leaves(monkeypatch):
    monkeypatch.setattr(probes, "_TIMEOUT", aiohttp.ClientTimeout(total=5))
    monkeypatch.setattr(fleet, "SILENT_SEC", 0.2)
    async with FakeEngine() as stuck, FakeEngine() as other, running(stuck, other) as gateway:
        engine = gateway.parts.fleet.engines[stuck.url.removeprefix("http://")]
        stuck.knobs.ready_hangs = True
        await until(lambda: engine.is_silent(asyncio.get_running_loop().time()))
        assert engine.ready
        assert await asked(gateway, stuck) == ({200}, 0)
        stuck.knobs.ready_hangs = False
        await until(lambda: not engine.is_silent(asyncio.get_running_loop().time()))
        assert (await asked(gateway, stuck))[1] > 0


async def test_engine_that_was_ejected_gets_turns_again_when_its_time_is_over():
    knobs = Knobs(status=500)
    async with FakeEngine(knobs=knobs) as bad, FakeEngine() as other, running(bad, other) as gateway:
        engine = gateway.parts.fleet.engines[bad.url.removeprefix("http://")]
        await asked(gateway, bad)
        assert engine.ejected_until
        knobs.status = None
        assert await asked(gateway, bad) == ({200}, 0)
        await until(lambda: not engine.ejected_until)
        statuses, many = await asked(gateway, bad)
        assert statuses == {200} and many > 0
