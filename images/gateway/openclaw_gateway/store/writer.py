"""The one thread that writes: group commit over whatever operations are waiting.

```
 event loop ── run(operation) ──▶ queue ──▶ thread: BEGIN · operation … operation · COMMIT ──▶ results
```
While one commit is on its way to the disk the next operations gather, so that one fsync serves many; where they come
side by side they may gather 2 ms longer.
An operation that raises fails alone: the batch is rolled back and run again one by one, which operations must bear.
A connection that breaks fails the batch, unless its COMMIT was on the way and is found to have taken place.
Bounds: ≤ 256 operations a commit. A thread that dies fails every waiter and ends `watch`.
"""

import asyncio
import contextlib
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from openclaw_gateway.store.databases import Database, Started, is_lost
from openclaw_gateway.store.transaction import Topic, Transaction

T = TypeVar("T")
Operation = Callable[[Transaction], T]
_MOST_PER_COMMIT = 256
GATHER_SEC = 0.002
"""Commits that several operations share are begun this long after one another at least: a commit's own cost is that of
five turns."""


class StoreUnavailableError(Exception):
    """The database cannot be read or written now (disk full, volume or server gone, thread dead)."""


class _BrokenError(Exception):
    """The whole batch failed with its connection or at its COMMIT: running it again would not help."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class _Waiting(msgspec.Struct, frozen=True):
    operation: Operation[Any]
    future: asyncio.Future[Any]
    unclaimed: Callable[[Any], None] | None


def _scrub(_: Transaction) -> None:
    """Stands in the queue for what wants no transaction: done after the commit of what waits beside it."""


class Writer:
    """`await run(operation)` returns its result once the commit is on disk."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: Connection | None = None
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        self._pulses = {topic: Pulse() for topic in Topic}
        self._committed_at, self._shared_last = -math.inf, False
        self._thread = threading.Thread(target=self._work, name="store-writer", daemon=True)
        self._thread.start()

    async def run(self, operation: Operation[T], *, unclaimed: Callable[[T], None] | None = None) -> T:
        """Raises StoreUnavailableError, or whatever the operation raised.

        `unclaimed` is told the result when it is committed and the caller was cancelled meanwhile.
        """
        if self._ended.done():
            raise StoreUnavailableError("the store's writer has ended")
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(_Waiting(operation, future, unclaimed))
        return await future

    async def scrub(self) -> None:
        """What is deleted by now cannot be read from the database's files any more. Raises StoreUnavailableError."""
        await self.run(_scrub)

    def pulse(self, topic: Topic) -> "Pulse":
        return self._pulses[topic]

    async def watch(self) -> None:
        """Ends (raising) when the thread does: the process must not live on without it."""
        await asyncio.shield(self._ended)

    async def close(self) -> None:
        """Commit what is waiting, then end the thread."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join, 10.0)
        self._database.engine.dispose()

    def _work(self) -> None:
        failure: Exception | None = None
        try:
            while batch := self._gather():
                self._commit([waiting for waiting in batch if waiting.operation is not _scrub])
                self._committed_at, self._shared_last = time.monotonic(), len(batch) > 1
                self._scrub([waiting for waiting in batch if waiting.operation is _scrub])
        except Exception as error:  # the thread's outermost loop: its end must reach the event loop
            failure = error
        self._let_go()
        self._hand_over(self._finish, failure)

    def _gather(self) -> list[_Waiting]:
        """Wait for one operation, take all that wait beside it; empty at the end."""
        batch: list[_Waiting] = []
        while (got := self._queue.get()) is not None:
            if not batch:
                self._let_gather()
            batch.append(got)
            if len(batch) >= _MOST_PER_COMMIT or self._queue.empty():
                return batch
        self._queue.put(None)  # end again after this batch
        return batch

    def _let_gather(self) -> None:
        """Where operations come side by side, those of the next moment go into the same commit."""
        if self._shared_last:
            left = self._committed_at + GATHER_SEC - time.monotonic()
            if left > 0:
                time.sleep(left)

    def _scrub(self, batch: Sequence[_Waiting]) -> None:
        if not batch:
            return
        self._let_go()
        try:
            self._database.scrub()
        except DBAPIError as error:
            for waiting in batch:
                self._hand_over(_fail, waiting.future, error)
        else:
            self._hand_over(self._deliver, batch, [None] * len(batch), set())

    def _commit(self, batch: Sequence[_Waiting]) -> None:
        if not batch:
            return
        try:
            outcome = self._transact(batch)
        except _BrokenError as broken:
            for waiting in batch:
                self._hand_over(_fail, waiting.future, broken.error)
        except Exception as error:
            if len(batch) == 1:
                self._hand_over(_fail, batch[0].future, error)
                return
            for waiting in batch:
                self._commit([waiting])
        else:
            self._hand_over(self._deliver, batch, *outcome)

    def _transact(self, batch: Sequence[_Waiting]) -> tuple[list[Any], set[Topic]]:
        with self._begun() as (connection, started):
            transaction = Transaction(connection, started.now)
            try:
                results = [waiting.operation(transaction) for waiting in batch]
                transaction.flush()
            except DBAPIError as error:
                if is_lost(error):
                    raise _BrokenError(error) from error
                raise
            self._end(connection, started)
        return results, transaction.touched

    @contextlib.contextmanager
    def _begun(self) -> Iterator[tuple[Connection, Started]]:
        """The connection with its transaction begun; one that went stale while idle is replaced once.

        It is kept from commit to commit, for taking one costs more than a turn; whatever goes wrong gives it up.
        """
        try:
            try:
                begun = self._begin()
            except DBAPIError as error:
                if not is_lost(error):
                    raise
                self._let_go()
                begun = self._begin()
        except DBAPIError as error:
            self._let_go()
            raise _BrokenError(error) from error
        try:
            yield begun
        except BaseException:
            self._let_go()
            raise

    def _begin(self) -> tuple[Connection, Started]:
        if self._connection is None:
            self._connection = self._database.engine.connect()
        self._connection.begin()
        return self._connection, self._database.start(self._connection)

    def _let_go(self) -> None:
        """Close the connection, which rolls back what it has begun."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(DBAPIError):
                connection.close()

    def _end(self, connection: Connection, started: Started) -> None:
        try:
            connection.commit()
        except DBAPIError as error:
            self._let_go()
            if not (is_lost(error) and self._happened(started)):
                raise _BrokenError(error) from error

    def _happened(self, started: Started) -> bool:
        try:
            return self._database.happened(started.ticket)
        except DBAPIError as error:
            raise _BrokenError(error) from error

    def _hand_over(self, callback: Callable[..., object], *arguments: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _deliver(self, batch: Sequence[_Waiting], results: list[Any], touched: set[Topic]) -> None:
        for waiting, result in zip(batch, results, strict=True):
            if not waiting.future.done():
                waiting.future.set_result(result)
            elif waiting.unclaimed is not None:
                waiting.unclaimed(result)
        for topic in touched:
            self._pulses[topic].beat()

    def _finish(self, failure: Exception | None) -> None:
        if not self._ended.done():
            if failure is None:
                self._ended.set_result(None)
            else:
                self._ended.set_exception(failure)
                self._ended.exception()  # it is read by `watch`, or by nobody


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if future.done():
        return
    if isinstance(error, DBAPIError):
        unavailable = StoreUnavailableError(f"the experience store failed: {error.orig}")
        unavailable.__cause__ = error
        future.set_exception(unavailable)
    else:
        future.set_exception(error)


class Pulse:
    """Counts commits that touched a topic; waiters continue at the next one."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = asyncio.Event()

    def beat(self) -> None:
        self.count += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_past(self, seen: int, timeout_sec: float) -> None:
        """Return once `count` > `seen`, or after the timeout."""
        if self.count > seen or timeout_sec <= 0:
            return
        try:
            async with asyncio.timeout(timeout_sec):
                await self._changed.wait()
        except TimeoutError:
            return
