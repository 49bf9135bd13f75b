"""The judge's loops: lease turns, judge each, keep the leases, look after a failing endpoint.

    lease loop ──turns──▶ one task per turn ──votes requests──▶ Endpoint (≤ judgeConcurrency open)
        ▲  ≤ max_turns held      │ majority
        └────────────────────────┴──▶ Store: score | drop(unjudged)
    extend loop: every LEASE_SEC / 3, all held leases; a lost one cancels its task
    probe loop: at start, and every PROBE_SEC while the endpoint fails and nothing else asks it

Every turn ends within 2 × judgeTimeoutSec (Endpoint's deadline) plus one post. When the process stops, held turns go
back unscored.
"""

import asyncio
import logging
from typing import Protocol

from openclaw_core.wire import JudgeTurn
from openclaw_judge import prompt, votes
from openclaw_judge.endpoint import Endpoint
from openclaw_judge.state import JudgingState
from openclaw_judge.store import StoreError

LEASE_SEC = 30.0
"""What a judge that was killed had in hand is judged by another after this long."""
POLL_SEC = 20.0
PROBE_SEC = 8.0
_STORE_AWAY_SEC = 2.0
_WRITE_TRIES = 4
_log = logging.getLogger(__name__)


class TurnStore(Protocol):
    """What the worker needs of the experience store; see `store.Store`."""

    async def lease(self, max_turns: int, lease_sec: float, wait_sec: float) -> list[JudgeTurn]: ...
    async def score(self, turn: JudgeTurn, score: int, votes: list[int | None]) -> bool: ...
    async def drop(self, turn: JudgeTurn, reason: str) -> bool: ...
    async def extend(self, turns: list[JudgeTurn], lease_sec: float) -> set[int]: ...
    async def release(self, turns: list[JudgeTurn]) -> None: ...


class Worker:
    """Judges up to `max_turns` turns at once."""

    def __init__(
        self, store: TurnStore, endpoint: Endpoint, state: JudgingState, *, votes: int, concurrency: int
    ) -> None:
        self._store, self._endpoint, self._state = store, endpoint, state
        self._votes = votes
        # More turns than slots would only wait here, out of reach of other workers.
        self._max_turns = max(1, concurrency // votes)
        self._held: dict[int, tuple[JudgeTurn, asyncio.Task[None]]] = {}
        self._changed = asyncio.Event()

    async def lease_loop(self) -> None:
        while True:
            free = self._max_turns - len(self._held)
            if free <= 0:
                await self._wait_for_room()
                continue
            try:
                turns = await self._store.lease(free, LEASE_SEC, POLL_SEC)
            except StoreError as error:
                _log.warning("no turns leased", extra={"error": str(error)})
                await asyncio.sleep(_STORE_AWAY_SEC)
                continue
            for turn in turns:
                self._start(turn)

    async def extend_loop(self) -> None:
        while True:
            await asyncio.sleep(LEASE_SEC / 3)
            held = [turn for turn, _ in self._held.values()]
            if not held:
                continue
            try:
                ours = await self._store.extend(held, LEASE_SEC)
            except StoreError as error:
                _log.warning("leases not extended", extra={"error": str(error)})
                continue
            for turn in held:
                if turn.id not in ours and turn.id in self._held:
                    self._held[turn.id][1].cancel()

    async def probe_loop(self) -> None:
        while True:
            if not self._state.ok and not self._held:
                await self._endpoint.probe()
            await asyncio.sleep(PROBE_SEC)

    async def give_back(self) -> None:
        """Cancel what runs and release its turns; used when the process stops."""
        held = list(self._held.values())
        for _, task in held:
            task.cancel()
        if held:
            await asyncio.wait([task for _, task in held], timeout=2.0)
            await self._store.release([turn for turn, _ in held])

    def _start(self, turn: JudgeTurn) -> None:
        task = asyncio.create_task(self._judge(turn), name=f"judge turn {turn.id}")
        self._held[turn.id] = (turn, task)
        task.add_done_callback(lambda done: self._ended(turn, done))

    def _ended(self, turn: JudgeTurn, task: asyncio.Task[None]) -> None:
        self._held.pop(turn.id, None)
        self._changed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("turn not judged", exc_info=error, extra={"session": turn.session, "turn": turn.turn})

    async def _wait_for_room(self) -> None:
        """Until a held turn ends; each is bounded, so this is."""
        self._changed.clear()
        await self._changed.wait()

    async def _judge(self, turn: JudgeTurn) -> None:
        ballots = await self._ballots(turn)
        score = votes.majority(ballots)
        for attempt in range(_WRITE_TRIES):
            try:
                await self._write(turn, score, ballots)
                return
            except StoreError as error:
                _log.warning("score not written", extra={"error": str(error), "session": turn.session})
                await asyncio.sleep(_STORE_AWAY_SEC * (attempt + 1))

    async def _ballots(self, turn: JudgeTurn) -> list[int | None]:
        messages = prompt.build(turn)
        deadline = asyncio.get_running_loop().time() + 2 * self._endpoint.timeout_sec
        texts = await asyncio.gather(*(self._endpoint.ask(messages, deadline=deadline) for _ in range(self._votes)))
        ballots = [votes.parse(text) for text in texts]
        for text, ballot in zip(texts, ballots, strict=True):
            if text is not None and ballot is None:
                self._state.count("unparsed")
        return ballots

    async def _write(self, turn: JudgeTurn, score: int | None, ballots: list[int | None]) -> None:
        where = {"session": turn.session, "turn": turn.turn}
        if score is None:
            accepted = await self._store.drop(turn, "unjudged")
            self._state.count("unjudged")
        else:
            accepted = await self._store.score(turn, score, ballots)
            self._state.scored(score)
        if not accepted:
            _log.warning("lease was lost before the score was written", extra=where)
        else:
            _log.info("turn judged", extra=where | {"score": score, "votes": ballots})
