"""Users of a bench, who ask without a pause: what became of their requests, and that none of them stopped early."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Asked:
    """Requests of all users."""

    requests: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    """By kind: a status, or the name of the exception."""


@asynccontextmanager
async def asking(*users: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """As long as the block runs. RuntimeError when one ended before: from then on it counted nothing."""
    tasks = [asyncio.create_task(user) for user in users]
    try:
        yield
        early = [task for task in tasks if task.done()]
    finally:
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    if early:
        raise RuntimeError("a user of the bench stopped early") from ends[tasks.index(early[0])]
