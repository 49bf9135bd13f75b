"""The judge's side of the experience store: five posts to the gateway's internal port.

Bodies and answers are `openclaw_core.wire` models. It decides nothing and retries nothing; a gateway that is away
raises StoreError.
"""

import asyncio
from typing import TypeVar

import aiohttp
from pydantic import ValidationError

from openclaw_core import wire

_ANSWER_WITHIN_SEC = 15.0
_Reply = TypeVar("_Reply", bound=wire.Message)


class StoreError(Exception):
    """The gateway did not answer, or refused."""


class Store:
    """`url` is the gateway's internal base URL, `token` its bearer token."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str, worker: str) -> None:
        self._session, self._url, self._worker = session, url.rstrip("/"), worker
        self._headers = {"Authorization": f"Bearer {token}"}

    async def lease(self, max_turns: int, lease_sec: float, wait_sec: float) -> list[wire.JudgeTurn]:
        body = wire.LeaseTurns(worker=self._worker, max_turns=max_turns, lease_sec=lease_sec, wait_sec=wait_sec)
        return (await self._post("turns/lease", body, wire.LeasedTurns, wait_sec)).turns

    async def score(self, turn: wire.JudgeTurn, score: int, votes: list[int | None]) -> bool:
        """False when the lease was lost: another worker has the turn, nothing was written."""
        body = wire.ScoreTurn(id=turn.id, lease=turn.lease, score=score, votes=votes)
        return turn.id in (await self._post("turns/score", body, wire.Accepted)).ids

    async def drop(self, turn: wire.JudgeTurn, reason: str) -> bool:
        body = wire.DropTurn(id=turn.id, lease=turn.lease, reason=reason)
        return turn.id in (await self._post("turns/drop", body, wire.Accepted)).ids

    async def extend(self, turns: list[wire.JudgeTurn], lease_sec: float) -> set[int]:
        """Ids that are still ours."""
        body = wire.ExtendTurns(ids=[t.id for t in turns], leases=[t.lease for t in turns], lease_sec=lease_sec)
        return set((await self._post("turns/extend", body, wire.Accepted)).ids)

    async def release(self, turns: list[wire.JudgeTurn]) -> None:
        body = wire.ReleaseTurns(ids=[t.id for t in turns], leases=[t.lease for t in turns])
        await self._post("turns/release", body, wire.Accepted)

    async def _post(self, path: str, body: wire.Message, reply: type[_Reply], wait_sec: float = 0.0) -> _Reply:
        try:
            async with (
                asyncio.timeout(_ANSWER_WITHIN_SEC + wait_sec),
                self._session.post(
                    f"{self._url}/internal/{path}", json=body.model_dump(), headers=self._headers
                ) as response,
            ):
                text = await response.text(errors="replace")
                if response.status != 200:
                    raise StoreError(f"gateway answered {response.status} to {path}: {text[:200]}")
                return reply.model_validate_json(text)
        except TimeoutError as error:
            raise StoreError(f"gateway did not answer {path} within {_ANSWER_WITHIN_SEC + wait_sec:g} s") from error
        except (aiohttp.ClientError, ValidationError) as error:
            raise StoreError(f"gateway failed on {path}: {type(error).__name__}: {error}") from error
