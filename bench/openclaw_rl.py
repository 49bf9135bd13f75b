"""OpenClaw-RL's rhythm beside ours on one engine: for how long users are refused when weights change.

    OpenClaw-RL   batch n+1 gathers ─▶ full: refuse ···· step n ends ─▶ weights ─▶ take again
    ours          turns are taken ···························· step n ends ─▶ refuse, weights, take again

Its loop trains on batch n while batch n+1 gathers, refuses once that is full, and exchanges weights when both are
ready: users who are quicker than a step are refused for the rest of it. Here the same users ask the same SGLang in both
rhythms, the same agent exchanges the weights, and a step is a wait of the same length.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager

import aiohttp

BATCH = 16
USERS = 8
TOKENS = 8
STEP_SEC = 10.0

Exchange = Callable[[str], Awaitable[object]]
"""Returns once the engine serves the version."""
Window = Callable[[str], Awaitable[float]]
"""The same; how long a gateway of ours refused for it, in seconds."""


class Users:
    """Ask one turn after another while `takes` is set; a turn that is under way goes on when it is cleared."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.takes = asyncio.Event()
        self._answered = 0
        self._more = asyncio.Event()

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as http:
            tasks = [asyncio.create_task(self._ask(http, number)) for number in range(USERS)]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)

    async def _ask(self, http: aiohttp.ClientSession, number: int) -> None:
        while True:
            await self.takes.wait()
            question = f"What is the capital of France? {number} {self._answered}"
            body = {"model": "policy", "messages": [{"role": "user", "content": question}], "max_tokens": TOKENS}
            async with http.post(f"{self._url}/v1/chat/completions", json=body) as answer:
                answer.raise_for_status()
                await answer.read()
            self._answered += 1
            self._more.set()

    async def batch(self) -> None:
        """Return when BATCH more turns are answered."""
        wanted = self._answered + BATCH
        while self._answered < wanted:
            self._more.clear()
            await self._more.wait()


async def measure(
    url: str, exchange: Exchange, window: Window, versions: Iterator[str], rounds: int
) -> Mapping[str, float]:
    """Medians over `rounds` steps of each rhythm."""
    users = Users(url)
    users.takes.set()
    async with asyncio.timeout(rounds * 2 * (STEP_SEC + 120)), users.asking():
        began = time.monotonic()
        await users.batch()
        filled = time.monotonic() - began
        its = [await _its_step(users, exchange, versions) for _ in range(rounds)]
        ours = [await _our_step(window, versions) for _ in range(rounds)]
    return {
        "openclaw_rl_window_ms": _ms(statistics.median(its)),
        "same_users_window_ms": _ms(statistics.median(ours)),
        "batch_ms": _ms(filled),
        "step_ms": _ms(STEP_SEC),
    }


async def _its_step(users: Users, exchange: Exchange, versions: Iterator[str]) -> float:
    step = asyncio.create_task(asyncio.sleep(STEP_SEC))
    await users.batch()
    began = time.monotonic()
    users.takes.clear()
    await step
    await exchange(next(versions))
    users.takes.set()
    return time.monotonic() - began


async def _our_step(window: Window, versions: Iterator[str]) -> float:
    await asyncio.sleep(STEP_SEC)
    return await window(next(versions))


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
