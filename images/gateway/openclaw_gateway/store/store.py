"""The store as the rest of the gateway sees it: one coroutine per operation, committed when it returns."""

import asyncio
import contextlib
import logging
import math
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial

from sqlalchemy.exc import DBAPIError

from openclaw_core import wire
from openclaw_gateway.store import judging, opt_outs, records, samples, stats, turns, upkeep
from openclaw_gateway.store.databases import Database
from openclaw_gateway.store.drain import Drain
from openclaw_gateway.store.sessions import Arrival
from openclaw_gateway.store.transaction import Policy, Topic
from openclaw_gateway.store.turns import Admission, Finished, Refusal
from openclaw_gateway.store.writer import Operation, StoreUnavailableError, Writer

_log = logging.getLogger(__name__)

FILE_NAME = "experience.db"
_OWED_AT_ONCE = 256
_LAST_SEC = 5.0
_LOOK_AGAIN_SEC = 1.0  # leases run out without a commit of their own


class Store:
    """`gateway` names this incarnation: `<pod>-<8 hex>`."""

    def __init__(self, writer: Writer, policy: Policy, gateway: str) -> None:
        self._writer, self._policy, self.gateway = writer, policy, gateway
        self._owed: list[tuple[Operation[object], int | None]] = []
        self._uncounted: Counter[str] = Counter()
        self._generating: set[int] = set()
        self._beat_at = -math.inf
        self._drain = Drain()
        self._closing = False

    @classmethod
    async def open(cls, database: Database, policy: Policy, gateway: str) -> "Store":
        """Open or make the tables; turns that generated when this gateway died last become dropped(gateway_lost).

        Nobody else has a SQLite file; in a shared database only earlier incarnations of this pod are known to be dead,
        others are when their heartbeat stops. Raises StoreUnavailableError.
        """
        try:
            await asyncio.to_thread(database.prepare)
        except DBAPIError as error:
            database.engine.dispose()
            raise StoreUnavailableError(f"the experience store cannot be opened: {error.orig}") from error
        store = cls(Writer(database), policy, gateway)
        pod = gateway.rpartition("-")[0] if database.is_shared else None
        await store._writer.run(lambda tx: turns.lose_everything(tx, pod))
        return store

    async def close(self) -> None:
        """What it is owed is stored first, if it works by now."""
        with contextlib.suppress(StoreUnavailableError, TimeoutError):
            async with asyncio.timeout(_LAST_SEC):
                await self._catch_up()
        await self._writer.close()

    def end_waits(self) -> None:
        """The process stops: long polls answer with what there is."""
        self._closing = True
        for topic in Topic:
            self._writer.pulse(topic).beat()

    async def watch(self) -> None:
        """Raises when the writer thread is dead."""
        await self._writer.watch()

    async def arrive(self, arrival: Arrival) -> Admission:
        return await self._admitted(lambda tx: turns.arrive(tx, arrival, self._policy))

    async def wait_for_room(self, arrival: Arrival, timeout_sec: float) -> Admission:
        """Try again at every place that comes free (dropPolicy block), until the timeout; then the last refusal."""
        deadline = asyncio.get_running_loop().time() + timeout_sec
        pulse = self._writer.pulse(Topic.CAPACITY)
        while True:
            seen = pulse.count
            admission = await self._admitted(lambda tx: turns.admit(tx, arrival, self._policy))
            left = deadline - asyncio.get_running_loop().time()
            if not isinstance(admission, turns.Refused) or left <= 0 or self._closing:
                return admission
            await pulse.wait_past(seen, min(left, _LOOK_AGAIN_SEC))

    def retry_after(self, code: Refusal) -> int:
        """Whole seconds a client that was refused should wait; a place at the engines is free again soon."""
        return 1 if code is Refusal.MAX_CONCURRENT else self._drain.refuse(asyncio.get_running_loop().time())

    async def finish(self, turn_id: int, finished: Finished) -> None:
        await self._surely(lambda tx: turns.finish(tx, turn_id, finished, self._policy), turn_id)

    async def withdraw(self, turn_id: int) -> None:
        await self._surely(lambda tx: turns.withdraw(tx, turn_id), turn_id)

    async def opt_out(self, arrival: Arrival) -> None:
        """What an arrival that failed would have done: this must be known whenever the store works again."""
        owner, marks = arrival.owner, opt_outs.marks(arrival)
        await self._surely(lambda tx: opt_outs.remember(tx, owner, marks))

    async def count_untracked(self, reason: str, owner: str, opted_out: Sequence[bytes] = ()) -> None:
        """`opted_out`: chains of an opted-out request and its answer, so that what quotes it is known."""
        try:
            await self._writer.run(lambda tx: turns.count_untracked(tx, reason, owner, opted_out))
        except StoreUnavailableError as error:
            _log.error("an untracked request is not counted yet: %s", error)
            self._uncounted[reason] += 1
            if opted_out:
                self._owed.append((lambda tx: opt_outs.answered(tx, owner, opted_out), None))

    async def end_session(self, owner: str, name: str) -> None:
        """The client ends a session with a request that is not a turn of it."""
        await self._surely(lambda tx: turns.end_session(tx, owner, name))

    async def lease_turns(self, request: wire.LeaseTurns) -> wire.LeasedTurns:
        """Long poll: at least one turn, or none after `wait_sec`. One that is cancelled leases nothing."""
        deadline = asyncio.get_running_loop().time() + request.wait_sec
        pulse = self._writer.pulse(Topic.JUDGE)
        while True:
            seen = pulse.count
            leased = await self._writer.run(
                lambda tx: judging.lease(tx, request, self._policy), unclaimed=self._give_back
            )
            left = deadline - asyncio.get_running_loop().time()
            if leased or left <= 0 or self._closing:
                return wire.LeasedTurns(turns=leased)
            await pulse.wait_past(seen, min(left, _LOOK_AGAIN_SEC))

    async def score(self, request: wire.ScoreTurn, canary_epoch: int | None = None) -> wire.Accepted:
        """`canary_epoch`: of the canary that serves now; scores are then counted by version too."""
        ids = await self._writer.run(lambda tx: judging.score(tx, request, self._policy, canary_epoch))
        return wire.Accepted(ids=ids)

    async def extend_turns(self, request: wire.ExtendTurns) -> wire.Accepted:
        return wire.Accepted(ids=await self._writer.run(lambda tx: judging.extend(tx, request)))

    async def drop_turn(self, request: wire.DropTurn) -> wire.Accepted:
        return wire.Accepted(ids=await self._writer.run(lambda tx: judging.drop(tx, request)))

    async def release_turns(self, request: wire.ReleaseTurns) -> wire.Accepted:
        return wire.Accepted(ids=await self._writer.run(lambda tx: judging.release(tx, request)))

    async def lease_samples(self, request: wire.LeaseSamples) -> wire.LeasedSamples:
        """Long poll: a batch, or nothing after `wait_sec`. Raises OldEpochError. One that is cancelled leases nothing,
        but in the moment of its commit: the next trainer frees that."""
        deadline = asyncio.get_running_loop().time() + request.wait_sec
        pulse = self._writer.pulse(Topic.QUEUE)
        while True:
            seen = pulse.count
            leased = await self._writer.run(lambda tx: samples.lease(tx, request, self._policy))
            left = deadline - asyncio.get_running_loop().time()
            if leased is not None:
                return leased
            if left <= 0 or self._closing:
                return wire.LeasedSamples(lease="", samples=[])
            await pulse.wait_past(seen, min(left, _LOOK_AGAIN_SEC))

    async def ack(self, request: wire.AckSamples) -> wire.Accepted:
        return wire.Accepted(ids=await self._writer.run(lambda tx: samples.ack(tx, request)))

    async def extend_samples(self, request: wire.ExtendSamples) -> wire.Accepted:
        return wire.Accepted(ids=await self._writer.run(lambda tx: samples.extend(tx, request)))

    async def release_samples(self, request: wire.ReleaseSamples) -> wire.Accepted:
        return wire.Accepted(ids=await self._writer.run(lambda tx: samples.release(tx, request)))

    async def drop_samples(self, request: wire.DropSamples) -> wire.Accepted:
        return wire.Accepted(ids=await self._writer.run(lambda tx: samples.drop(tx, request)))

    async def export(self, states: Sequence[str], session: str | None) -> AsyncIterator[bytes]:
        """Lines of `wire.ExportedTurn`, a page at a time."""
        after: int | None = 0
        while after is not None:
            page = await self._writer.run(partial(records.page, after=after, states=states, session=session))
            if page.lines:
                yield page.lines
            after = page.last_id

    async def erase(self, request: wire.EraseSession) -> wire.Erased:
        """Returns when nothing of the session is in the database's files. Raises StoreUnavailableError."""
        erased = await self._writer.run(lambda tx: records.erase(tx, request))
        await self._writer.scrub()
        return erased

    async def stats(self, refused: Mapping[str, int]) -> wire.Stats:
        return await self._writer.run(lambda tx: stats.stats(tx, self._policy, refused))

    async def upkeep(self) -> None:
        """What time does, and what a store that was down is owed. Raises StoreUnavailableError."""
        now = asyncio.get_running_loop().time()
        alive = tuple(self._generating) if now - self._beat_at >= turns.HEARTBEAT_SEC else ()
        self._drain.observe(now, await self._writer.run(lambda tx: upkeep.upkeep(tx, self._policy, alive)))
        if alive:
            self._beat_at = now
        await self._catch_up()

    async def _catch_up(self) -> None:
        """What a store that was down is owed, many at a time: heartbeats wait behind it. Raises StoreUnavailableError.

        Requests are owed as numbers, however many were served meanwhile. One by one are owed: ends of turns, bounded by
        what was in flight, and what an opt-out or the end of a session is known by, which may not be lost.
        """
        counts, self._uncounted = self._uncounted, Counter()
        if counts:
            try:
                await self._writer.run(lambda tx: turns.count_many(tx, counts))
            except StoreUnavailableError:
                self._uncounted += counts
                raise
        for _ in range(0, len(self._owed), _OWED_AT_ONCE):
            owed, self._owed = self._owed[:_OWED_AT_ONCE], self._owed[_OWED_AT_ONCE:]
            await asyncio.gather(*(self._surely(operation, turn_id) for operation, turn_id in owed))

    async def _admitted(self, operation: Operation[Admission]) -> Admission:
        """Turns known here stay alive; a begin whose answer is lost with a connection, or with its caller, must not."""
        admission = await self._writer.run(operation, unclaimed=self._disown)
        if isinstance(admission, turns.Begun):
            self._generating.add(admission.turn_id)
        return admission

    def _disown(self, admission: Admission) -> None:
        """Nobody waited for this admission any more: undo it at the next upkeep."""
        if isinstance(admission, turns.Begun):
            turn_id = admission.turn_id
            self._owed.append((lambda tx: turns.withdraw(tx, turn_id), turn_id))

    def _give_back(self, leased: Sequence[wire.JudgeTurn]) -> None:
        """Nobody waited for these turns any more: another judge may have them from the next upkeep on."""
        if leased:
            request = wire.ReleaseTurns(ids=[turn.id for turn in leased], leases=[turn.lease for turn in leased])
            self._owed.append((lambda tx: judging.release(tx, request), None))

    async def _surely(self, operation: Operation[object], ends: int | None = None) -> None:
        """The end of what a client was served: it has its answer, so a store that is down catches up later.

        `ends`: the turn, alive until then.
        """
        try:
            await self._writer.run(operation)
        except StoreUnavailableError as error:
            _log.error("the end of a turn is not stored yet: %s", error)
            self._owed.append((operation, ends))
        else:
            if ends is not None:
                self._generating.discard(ends)
