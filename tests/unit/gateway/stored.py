"""The store's operations on a database in memory, with a clock the test moves."""

import math
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from typing import Any, TypeVar

import orjson
from sqlalchemy import select

from openclaw_core import wire
from openclaw_gateway import conversation
from openclaw_gateway.store import judging, samples, stats, turns, upkeep
from openclaw_gateway.store.databases import Database, Sqlite
from openclaw_gateway.store.schema import metadata
from openclaw_gateway.store.sessions import Arrival
from openclaw_gateway.store.stats import difference
from openclaw_gateway.store.transaction import Policy, Transaction
from openclaw_gateway.store.turns import Begun, Finished, Recording, Span

T = TypeVar("T")
VERSION = "0-00000000"
POLICY = Policy(
    max_head_off_policyness=2,
    rollout_batch_size=16,
    max_concurrent=256,
    max_size=512,
    drop_policy="reject",
    on_stale="reject",
    next_state_grace_sec=60.0,
    session_idle_sec=1800.0,
    fire_on_turn_end=True,
    judge_in_order=False,
    kept_turns=20000,
    kept_sec=math.inf,
    judge_slots=4,
)


def talk(*texts: str) -> list[dict[str, Any]]:
    """User and assistant messages in turn."""
    return [{"role": ("user", "assistant")[index % 2], "content": text} for index, text in enumerate(texts)]


def arrival(messages: list[dict[str, Any]], **fields: Any) -> Arrival:
    defaults: dict[str, Any] = {
        "owner": "alice",
        "session": None,
        "done": False,
        "messages": messages,
        "outline": conversation.outline(messages),
        "hints": {},
        "body_hash": blake2b(orjson.dumps(messages), digest_size=16).digest(),
        "idempotency_key": None,
        "is_retry": False,
        "gateway": "gw",
    }
    return Arrival(**defaults | fields)


def recording(tokens: int = 3) -> Recording:
    span = Span(version=VERSION, start=0, end=tokens)
    return Recording([1, 2], list(range(tokens)), [-0.5] * tokens, [span], wire.Sampling(temperature=1.0))


class Stored:
    """On `database`, or on SQLite in memory; its tables are made here."""

    def __init__(self, database: Database | None = None, **policy: Any) -> None:
        self.policy = replace(POLICY, **policy)
        self.now = 1000.0
        self.alive: set[int] = set()
        """What gateway "gw" says it generates."""
        self.database = database or Sqlite(None)
        self.database.prepare()

    def close(self) -> None:
        self.database.engine.dispose()

    def run(self, operation: Callable[[Transaction], T]) -> T:
        with self.database.engine.begin() as connection:
            self.database.start(connection)
            tx = Transaction(connection, self.now)
            result = operation(tx)
            tx.flush()
        return result

    def arrive(self, *texts: str, **fields: Any) -> turns.Admission:
        arrived = arrival(talk(*texts), **fields)
        admission = self.run(lambda tx: turns.arrive(tx, arrived, self.policy))
        if isinstance(admission, Begun) and arrived.gateway == "gw":
            self.alive.add(admission.turn_id)
        return admission

    def begin(self, *texts: str, **fields: Any) -> Begun:
        admission = self.arrive(*texts, **fields)
        assert isinstance(admission, Begun), admission
        return admission

    def finish(self, turn: Begun, *texts: str, answer: str = "ok", drop: str | None = None) -> str | None:
        """`texts` is the prompt."""
        message = {"role": "assistant", "content": answer}
        prompt = talk(*texts)
        chain = conversation.extend(conversation.outline(prompt).chain, message)
        finished = Finished(prompt, message, chain, None if drop else recording(), drop)
        return self.run(lambda tx: turns.finish(tx, turn.turn_id, finished, self.policy))

    def turn(self, *texts: str, answer: str = "ok", **fields: Any) -> Begun:
        """Begin and finish."""
        begun = self.begin(*texts, **fields)
        self.finish(begun, *texts, answer=answer)
        return begun

    def scored(self, session: str, score: int = 1) -> int:
        """A turn with next state and score; its id."""
        begun = self.turn("q", session=session)
        self.arrive("q", "ok", "thanks", session=session, untracked="n")
        (leased,) = [turn for turn in self.lease_turns() if turn.id == begun.turn_id]
        request = wire.ScoreTurn(id=leased.id, lease=leased.lease, score=score, votes=[score])
        assert self.run(lambda tx: judging.score(tx, request, self.policy)) == [leased.id]
        return begun.turn_id

    def lease_turns(self, most: int = 100, lease_sec: float = 60.0) -> list[wire.JudgeTurn]:
        request = wire.LeaseTurns(worker="w", max_turns=most, lease_sec=lease_sec)
        return self.run(lambda tx: judging.lease(tx, request, self.policy))

    def lease_samples(self, batch: int, *, epoch: int = 1, **fields: Any) -> list[wire.Sample] | None:
        values = {"trainer_epoch": epoch, "batch": batch, "min_batch": batch, "batch_wait_sec": 300, "lease_sec": 60}
        request = wire.LeaseSamples(**values | fields)
        leased = self.run(lambda tx: samples.lease(tx, request, self.policy))
        return None if leased is None else leased.samples

    def ack(self, *ids: int, epoch: int = 1, version: str = VERSION) -> list[int]:
        request = wire.AckSamples(trainer_epoch=epoch, ids=list(ids), version=version)
        return self.run(lambda tx: samples.ack(tx, request))

    def upkeep(self) -> None:
        self.run(lambda tx: upkeep.upkeep(tx, self.policy, self.alive))

    def stats(self) -> wire.Stats:
        """The identity must hold whenever anybody looks."""
        shown = self.run(lambda tx: stats.stats(tx, self.policy, {}))
        assert difference(shown) == (0, 0), shown
        return shown

    def dump(self) -> str:
        """Every row of every table, bytes as they are."""

        def rows(tx: Transaction) -> str:
            found = (row for table in metadata.sorted_tables for row in tx.connection.execute(select(table)))
            return "\n".join(repr(tuple(row)) for row in found)

        return self.run(rows)
