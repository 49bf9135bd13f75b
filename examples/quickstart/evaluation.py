"""Asking the policy: held-out questions at the users' temperature and quality questions greedily, as side turns.

Side turns are served and counted, and train nothing. Uses the environment's own patient client, whose journal is the
demo's count of answers and refusals.
"""

import asyncio
from dataclasses import dataclass
from itertools import starmap

from openclaw_environment.chat import Chat, GaveUpError
from openclaw_environment.tasks.preference import PreferenceTask

AT_ONCE = 8
_TRIES, _AGAIN_AFTER_SEC = 6, 5.0
_SIDE = {"X-Turn-Type": "side"}


@dataclass(frozen=True)
class Evaluation:
    """Answers to the held-out questions (some may be missing), and the share the users would like."""

    answers: tuple[tuple[str, str], ...]
    rate: float


class Examiner:
    """Asks one task's questions. GaveUpError when a question stays unanswered."""

    def __init__(self, chat: Chat, task: PreferenceTask, model: str) -> None:
        self._chat, self._task, self._model = chat, task, model
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def held_out(self) -> Evaluation:
        questions = self._task.held_out
        answers = await asyncio.gather(*(self.ask(question, self._task.temperature) for question in questions))
        asked = tuple(zip(questions, answers, strict=True))
        return Evaluation(asked, sum(starmap(self._task.prefers, asked)) / len(asked))

    async def quality(self) -> float:
        """Share of the quality questions answered correctly, greedily."""
        questions = self._task.quality
        answers = await asyncio.gather(*(self.ask(question, 0.0) for question in questions))
        correct = (self._task.is_correct(question, answer) for question, answer in zip(questions, answers, strict=True))
        return sum(correct) / len(questions)

    async def ask(self, question: str, temperature: float) -> str:
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": self._task.prompt(question)}],
            "temperature": temperature,
            "max_tokens": self._task.max_tokens,
        }
        async with self._slots:
            for _ in range(_TRIES - 1):
                try:
                    return await self._chat.say(body, _SIDE)
                except GaveUpError:  # counted as broken off by the journal; a side turn may be asked again
                    await asyncio.sleep(_AGAIN_AFTER_SEC)
            return await self._chat.say(body, _SIDE)
