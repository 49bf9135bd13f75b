"""Bodies that come slowly, in virtual time: each part has a bound, and so has the whole."""

import asyncio

import pytest

from openclaw_gateway import asgi, errors

pytestmark = pytest.mark.looptime


def body_of(parts, size, every_sec):
    """An ASGI receive: `parts` parts of `size` bytes, each after a silence."""
    left = parts

    async def receive():
        nonlocal left
        await asyncio.sleep(every_sec)
        left -= 1
        return {"type": "http.request", "body": b"x" * size, "more_body": left > 0}

    return receive


async def told_after(receive):
    """Seconds until it is refused."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(errors.ApiError) as refused:
        await asgi.read_body(receive)
    assert (refused.value.status, refused.value.code) == (408, "body_timeout")
    return loop.time() - began


@pytest.mark.parametrize(("every_sec", "most_sec"), [(29, 31), (1, 31), (31, 30)])
async def test_body_that_trickles_is_refused_within_its_bound(every_sec, most_sec):
    assert 29 < await told_after(body_of(10**9, 1, every_sec)) <= most_sec


async def test_body_at_the_least_rate_may_take_as_long_as_it_needs():
    assert len(await asgi.read_body(body_of(1000, 8 << 10, 1))) == 1000 * (8 << 10)


async def test_body_that_came_fast_buys_no_silence():
    async def first_fast():
        nonlocal sent
        sent += 1
        await asyncio.sleep(0 if sent <= 100 else 1000)
        return {"type": "http.request", "body": bytes(1 << 19), "more_body": True}

    sent = 0
    assert await told_after(first_fast) == 30
