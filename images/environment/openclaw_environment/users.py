"""Simulated users: N of them, each in a loop of short sessions with the policy.

    user loop ──┬── gate (POST /stop closes it, /start opens it)
                └── session: question turn ──answer──▶ likes it? ──▶ closing turn with the reaction

One session is open per user, so N bounds the load. What a user likes is the task's hidden preference; the policy
only ever sees the words of the reaction.
"""

import asyncio
import itertools
import logging
import random
import uuid
from collections.abc import Iterator
from typing import Any

from openclaw_environment.chat import Chat, GaveUpError
from openclaw_environment.journal import Journal
from openclaw_environment.settings import Settings
from openclaw_environment.tasks.reactions import reaction

_AFTER_FAILURE_SEC = 2.0
_log = logging.getLogger(__name__)


class Users:
    """All users of this process."""

    def __init__(self, settings: Settings, chat: Chat, journal: Journal, model: str) -> None:
        self._settings, self._chat, self._journal, self._model = settings, chat, journal, model
        self._gate = asyncio.Event()
        if not settings.start_stopped:
            self._gate.set()

    @property
    def stopped(self) -> bool:
        return not self._gate.is_set()

    def stop(self) -> None:
        """No new sessions; open ones go on to their end."""
        self._gate.clear()

    def start(self) -> None:
        self._gate.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for user in range(self._settings.users):
                group.create_task(self._user(user), name=f"user {user}")

    async def _user(self, user: int) -> None:
        rng = random.Random(f"{self._settings.seed}/{user}")
        for question in shuffled_for_ever(self._settings.task.training, rng):
            await self._gate.wait()
            self._journal.session_began()
            complete = False
            try:
                await self._session(user, question, rng)
                complete = True
            except GaveUpError as error:
                _log.warning("session given up", extra={"user": user, "error": str(error)})
                await asyncio.sleep(_AFTER_FAILURE_SEC)
            finally:
                self._journal.session_ended(complete=complete)

    async def _session(self, user: int, question: str, rng: random.Random) -> None:
        settings, session = self._settings, {"X-Session-Id": str(uuid.uuid4()), "X-Turn-Type": "main"}
        messages = [{"role": "user", "content": settings.task.prompt(question)}]
        answer = await self._chat.say(self._body(user, messages, settings.max_tokens), session)
        liked = settings.task.prefers(question, answer)
        self._journal.reacted(liked=liked)
        messages += [
            {"role": "assistant", "content": answer},
            {"role": "user", "content": reaction(liked, rng, swapped=settings.swapped)},
        ]
        await self._chat.say(self._body(user, messages, 1), session | {"X-Session-Done": "1"})

    def _body(self, user: int, messages: list[dict[str, str]], max_tokens: int) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "messages": messages,
            "temperature": self._settings.temperature,
            "max_tokens": max_tokens,
        }
        return body | ({"stream": True} if self._settings.streams(user) else {})


def shuffled_for_ever(questions: tuple[str, ...], rng: random.Random) -> Iterator[str]:
    """Every question once in random order, then again in another order."""
    return itertools.chain.from_iterable(rng.sample(questions, len(questions)) for _ in itertools.count())
