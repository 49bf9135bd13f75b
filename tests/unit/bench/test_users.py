"""A bench whose users stopped asking has measured nothing, and says so."""

import asyncio

import pytest

from bench.users import Asked, asking

pytestmark = pytest.mark.looptime


async def user(asked: Asked, most: int | None = None) -> None:
    while asked.requests != most:
        asked.requests += 1
        await asyncio.sleep(1)
    raise ValueError("broken")


async def test_users_ask_until_the_end_of_the_block() -> None:
    asked = Asked()
    async with asking(user(asked), user(asked)):
        await asyncio.sleep(9.5)
    assert asked.requests == 20
    await asyncio.sleep(10)
    assert asked.requests == 20


async def test_user_that_stops_early_fails_the_bench_with_its_reason() -> None:
    with pytest.raises(RuntimeError, match="stopped early") as failed:
        async with asking(user(Asked()), user(Asked(), most=3)):
            await asyncio.sleep(10)
    assert isinstance(failed.value.__cause__, ValueError)
