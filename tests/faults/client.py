"""A user of the gateway who asks one thing after another, each until it is answered, and notes when it was."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import aiohttp

ATTEMPT_SEC = 8.0
"""The user's own patience with one attempt; then comes the next."""


@dataclass(frozen=True)
class Silence:
    """A time without an answer: first the gateway said 503, if it did, then nothing came. Seconds."""

    refused: float
    """From its begin to the last 503 in it."""
    held: float
    """The rest."""

    @property
    def whole(self) -> float:
        return self.refused + self.held


@dataclass
class Client:
    """`answers`: moments of success; `refusals`: of a 503; `lost`: questions given up without an answer."""

    url: str
    recorded: bool = True
    """Each question is the only turn of a session of its own. False: opted out, nothing of it is stored."""
    answers: list[float] = field(default_factory=list)
    refusals: list[float] = field(default_factory=list)
    lost: int = 0
    patience_sec: float = 75.0
    _asked: int = 0
    _answered: list[str] = field(default_factory=list)

    async def run(self) -> None:
        timeout = aiohttp.ClientTimeout(total=ATTEMPT_SEC, sock_connect=1)
        async with aiohttp.ClientSession(timeout=timeout) as http:
            while True:
                await self._ask(http)
                await asyncio.sleep(0.1)

    def silences(self, began: float, ended: float) -> list[Silence]:
        """Every time without an answer between two moments."""
        moments = [began, *(moment for moment in self.answers if began < moment < ended), ended]
        return [_silence(before, after, self.refusals) for before, after in pairwise(moments)]

    def longest_silence(self, began: float, ended: float) -> float:
        return max(silence.whole for silence in self.silences(began, ended))

    def take_answered(self) -> list[str]:
        """Sessions answered since the last call."""
        taken, self._answered = self._answered, []
        return taken

    async def _ask(self, http: aiohttp.ClientSession) -> None:
        self._asked += 1
        session, began = f"asked-{self._asked}", time.monotonic()
        while time.monotonic() - began < self.patience_sec:
            if await self._try(http, session):
                self.answers.append(time.monotonic())
                self._answered.append(session)
                return
            await asyncio.sleep(0.1)
        self.lost += 1

    async def _try(self, http: aiohttp.ClientSession, session: str) -> bool:
        body = {"model": "policy", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}
        try:
            async with http.post(self.url, json=body, headers=self._headers(session)) as answer:
                whole = await answer.json(content_type=None)
                if answer.status == 503:
                    self.refusals.append(time.monotonic())
                return answer.status == 200 and bool(whole["choices"][0]["message"]["content"])
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError):
            return False

    def _headers(self, session: str) -> dict[str, str]:
        """A session that is done with its first turn keeps no place in the backlog: nobody here judges or trains."""
        recorded = {"X-Session-Id": session, "X-Session-Done": "true"}
        return recorded if self.recorded else {"X-Openclaw-No-Train": "1"}


def _silence(began: float, ended: float, refusals: Sequence[float]) -> Silence:
    last = max((moment for moment in refusals if began < moment < ended), default=began)
    return Silence(refused=last - began, held=ended - last)
