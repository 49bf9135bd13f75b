"""The pause on the request path, in virtual time: refuse or wait, and never for longer than the hold."""

import asyncio

import pytest

from openclaw_gateway.errors import ApiError
from openclaw_gateway.gate import Gate

pytestmark = pytest.mark.looptime


def gate(**fields):
    return Gate(now=asyncio.get_running_loop().time, **{"holds_requests": False} | fields)


async def test_paused_gate_refuses_until_the_hold_expires():
    closed = gate()
    closed.hold(1, 30)
    await asyncio.sleep(29.5)
    with pytest.raises(ApiError) as refused:
        await closed.enter()
    assert (refused.value.status, refused.value.message) == (503, "submission paused for weight update")
    assert refused.value.headers() == {"Retry-After": "1", "Retry-After-Ms": "850"}
    await asyncio.sleep(0.5)
    await closed.enter()


async def test_release_opens_at_once():
    closed = gate()
    closed.hold(1, 30)
    closed.release(1, "1-0a1b2c3d")
    await closed.enter()


async def test_holding_gate_lets_requests_wait_for_the_release():
    closed = gate(holds_requests=True)
    closed.hold(1, 30)
    waiting = asyncio.create_task(closed.enter())
    await asyncio.sleep(5)
    assert not waiting.done()
    closed.release(1, None)
    await asyncio.sleep(0.01)
    assert waiting.done()


async def test_holding_gate_opens_when_the_hold_expires():
    closed = gate(holds_requests=True)
    closed.hold(1, 30)
    began = asyncio.get_running_loop().time()
    await closed.enter()
    assert asyncio.get_running_loop().time() - began == pytest.approx(30)


async def test_holding_gate_waits_for_the_newest_hold():
    closed = gate(holds_requests=True)
    closed.hold(1, 30)
    waiting = asyncio.create_task(closed.enter())
    await asyncio.sleep(20)
    closed.hold(2, 30)
    await asyncio.sleep(20)
    assert not waiting.done()
    await asyncio.sleep(10.1)
    assert waiting.done()


async def test_who_waits_since_an_older_hold_goes_on_at_the_newest_ones_release():
    closed = gate(holds_requests=True)
    closed.hold(1, 30)
    waiting = asyncio.create_task(closed.enter())
    await asyncio.sleep(1)
    closed.hold(2, 30)
    closed.release(2, None)
    await asyncio.sleep(0.01)
    assert waiting.done()


async def test_nothing_departs_once_a_pause_began():
    closed = gate()
    await closed.enter()
    closed.hold(1, 30)
    with pytest.raises(ApiError):
        await closed.depart()
    assert closed.departures.unsent == 0


async def test_pause_is_acknowledged_when_the_last_request_is_sent():
    open_gate = gate()
    departure = await open_gate.depart()
    open_gate.hold(1, 30)
    waiting = asyncio.create_task(open_gate.departures.all_sent(0.4))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    departure.sent()
    departure.sent()
    assert await waiting
    assert open_gate.departures.unsent == 0


async def test_acknowledgement_waits_no_longer_than_its_bound():
    open_gate = gate()
    await open_gate.depart()
    assert not await open_gate.departures.all_sent(0.4)


async def test_changes_are_told_once():
    told = []
    observed = gate()
    observed.on_change(lambda: told.append(observed.is_on()))
    observed.hold(1, 30)
    observed.hold(1, 30)
    observed.release(1, None)
    observed.release(1, None)
    assert told == [True, False]
