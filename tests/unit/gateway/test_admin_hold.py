"""The admin's hold as clients meet it: 503 with its own code, the reason, and an honest Retry-After."""

import asyncio
from datetime import UTC, datetime, timedelta

import openai
import pytest

from openclaw_core import names
from openclaw_core.leases import SubmissionHold, WeightSyncState, render_submission_hold, render_weight_sync
from openclaw_gateway.errors import ApiError
from openclaw_gateway.gate import Gate
from openclaw_gateway.lease_watch import LeaseWatch
from tests.fakes.engine import FakeEngine
from tests.unit.gateway.running import conversation, running

NOW = datetime(2026, 1, 1, tzinfo=UTC)
USER = conversation("Hi")


def ahead(seconds, now=NOW):
    return SubmissionHold(until=now + timedelta(seconds=seconds), reason="storage is being moved")


def held(gate, seconds):
    gate.hold_submissions(ahead(seconds), NOW)


async def refusal(gate):
    with pytest.raises(ApiError) as refused:
        await gate.enter()
    return refused.value


def gate(**fields):
    return Gate(now=asyncio.get_running_loop().time, **{"holds_requests": False} | fields)


@pytest.mark.looptime
async def test_held_gate_refuses_with_the_reason_and_opens_by_itself_at_the_time():
    closed = gate()
    held(closed, 90)
    error = await refusal(closed)
    assert (error.status, error.code) == (503, "submission_held")
    assert error.message == "submissions are held until 2026-01-01T00:01:30Z: storage is being moved"
    assert error.headers() == {"Retry-After": "90"}
    await asyncio.sleep(89.5)
    assert (await refusal(closed)).headers() == {"Retry-After": "1"}
    await asyncio.sleep(0.5)
    await closed.enter()


@pytest.mark.looptime
async def test_hold_longer_than_clients_wait_tells_them_not_to_try_again():
    closed = gate()
    held(closed, 3600)
    assert (await refusal(closed)).headers() == {"Retry-After": "3600", "x-should-retry": "false"}


@pytest.mark.looptime
async def test_hold_refuses_where_a_weight_sync_only_delays():
    closed = gate(holds_requests=True)
    closed.hold(1, 30)
    waiting = asyncio.create_task(closed.enter())
    await asyncio.sleep(1)
    held(closed, 90)
    closed.release(1, None)
    with pytest.raises(ApiError, match="storage is being moved"):
        await waiting


@pytest.mark.looptime
async def test_nothing_departs_once_a_hold_began():
    closed = gate()
    await closed.enter()
    held(closed, 90)
    with pytest.raises(ApiError):
        await closed.depart()
    assert closed.departures.unsent == 0


def lease(note=None):
    body = render_weight_sync(WeightSyncState(epoch=3, serving_version="1-0a1b2c3d"))
    if note is not None:
        body["metadata"]["annotations"][names.ANNOTATION_HOLD] = note
    return body


@pytest.mark.looptime
async def test_watch_passes_a_hold_on_and_its_removal():
    watched = gate()
    watch = LeaseWatch(None, watched, namespace="ns", training="t")
    watch.seen(lease(render_submission_hold(ahead(600))), NOW + timedelta(seconds=200))
    assert watched.held_sec() == 400
    watch.seen(lease(), NOW)
    await watched.enter()
    watch.seen(lease(render_submission_hold(ahead(-5))), NOW)
    await watched.enter()


@pytest.mark.looptime
@pytest.mark.parametrize("note", ["garbage", "{}", '{"until": "2030-01-01T00:00:00", "reason": "naive"}'])
async def test_garbled_hold_is_none_and_the_pause_beside_it_is_still_seen(note):
    watched = gate()
    LeaseWatch(None, watched, namespace="ns", training="t").seen(lease(note), NOW)
    await watched.enter()
    assert watched.pause.epoch == 3


async def test_held_submissions_reach_no_engine_and_no_store_and_are_counted():
    async with FakeEngine() as engine, running(engine) as gateway:
        gateway.parts.gate.hold_submissions(ahead(3600, datetime.now(UTC)), datetime.now(UTC))
        for headers in ({}, {"X-Turn-Type": "side"}, {"X-Openclaw-No-Train": "1"}):
            status, body = await gateway.post(USER, headers=headers)
            assert (status, body["error"]["code"]) == (503, "submission_held")
            assert "storage is being moved" in body["error"]["message"]
        assert engine.requests == []
        stats = await gateway.stats()
        assert (stats.served, stats.refused) == (0, {"submission_held": 3})
        status, state = await gateway.internal("/state")
        assert status == 200 and 3500 < state["held_sec"] <= 3600


async def test_openai_client_gives_up_at_once_on_a_long_hold_and_shows_the_reason():
    async with FakeEngine() as engine, running(engine) as gateway:
        gateway.parts.gate.hold_submissions(ahead(3600, datetime.now(UTC)), datetime.now(UTC))
        with pytest.raises(openai.InternalServerError, match="storage is being moved"):
            await gateway.client(max_retries=5).chat.completions.create(model="p", messages=USER)
        assert (await gateway.stats()).refused == {"submission_held": 1}


async def test_openai_client_waits_a_short_hold_out():
    async with FakeEngine(reply="Hello") as engine, running(engine) as gateway:
        now = datetime.now(UTC)
        gateway.parts.gate.hold_submissions(ahead(0.8, now), now)
        reply = await gateway.client(max_retries=2).chat.completions.create(model="p", messages=USER)
        assert reply.choices[0].message.content == "Hello"
