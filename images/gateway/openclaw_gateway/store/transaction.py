"""What an operation of the store gets: a connection, the time, and two things to leave behind."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from sqlalchemy import Connection, select

from openclaw_core.config.components import GatewayConfig
from openclaw_gateway.store import statements as st
from openclaw_gateway.store.prepared import Driver, Prepared, PreparedIn
from openclaw_gateway.store.schema import counters

AnyRow: TypeAlias = Any
"""A row of a query, columns by name."""

SERVED, RECORDED, TRAINED = "served", "recorded", "trained"
TRAINER_EPOCH = "trainer_epoch"


class Topic(StrEnum):
    """What waiters wait for."""

    CAPACITY = "capacity"
    JUDGE = "judge"
    QUEUE = "queue"


@dataclass(frozen=True)
class Policy:
    """The bounds of a training, as the operations need them."""

    max_head_off_policyness: int
    rollout_batch_size: int
    max_concurrent: int
    max_size: int
    drop_policy: str
    on_stale: str
    next_state_grace_sec: float
    session_idle_sec: float
    fire_on_turn_end: bool
    judge_in_order: bool
    kept_turns: int
    kept_sec: float
    judge_slots: int
    """Turns leased to judges at once; each takes `votes` of the `judgeConcurrency` open requests."""

    @classmethod
    def of(cls, config: GatewayConfig) -> "Policy":
        return cls(
            max_head_off_policyness=config.max_head_off_policyness,
            rollout_batch_size=config.rollout_batch_size,
            max_concurrent=config.gateway.max_concurrent,
            max_size=config.queue.max_size,
            drop_policy=config.queue.drop_policy,
            on_stale=config.on_stale,
            next_state_grace_sec=config.gateway.next_state_grace_sec,
            session_idle_sec=config.gateway.session_idle_sec,
            fire_on_turn_end=config.fire_on_turn_end,
            judge_in_order=config.judging_mode == "sync",
            kept_turns=config.queue.retention.turns,
            kept_sec=config.queue.retention.days * 86400.0 or math.inf,
            judge_slots=max(1, config.judge_concurrency // config.votes),
        )


@dataclass
class Transaction:
    """What the operations of one commit share. Counter changes are written at its end, topics wake waiters after it."""

    _connection: Connection
    now: float
    counts: Counter[str] = field(default_factory=Counter)
    touched: set[Topic] = field(default_factory=set)
    backlog: dict[str, int] | None = None
    """Turns that take a place, by state, as far as this commit has counted them."""

    opting_out: dict[str, bool] = field(default_factory=dict)
    """Owners, and whether anything is known that they opted out of, as far as this commit has asked."""

    def __post_init__(self) -> None:
        self._driver = Driver(self._connection)

    @property
    def connection(self) -> Connection:
        """For whatever is not prepared: it may change the backlog, so that is counted anew."""
        self.backlog = None
        return self._connection

    def run(self, statement: Prepared, given: Mapping[str, Any]) -> list[AnyRow]:
        """A prepared statement. What it does to the backlog, the caller says with `moved`."""
        return statement.run(self._driver, given)

    def run_in(self, statement: PreparedIn, given: Mapping[str, Any], values: Sequence[Any]) -> list[AnyRow]:
        return statement.run(self._driver, given, values)

    def moved(self, *, out_of: str | None = None, into: str | None = None) -> None:
        """A turn left its place, or took one."""
        if self.backlog is not None:
            for state, change in ((out_of, -1), (into, 1)):
                if state is not None:
                    self.backlog[state] = self.backlog.get(state, 0) + change

    def count(self, name: str, change: int = 1) -> None:
        self.counts[name] += change

    def flush(self) -> None:
        """Add the changes to the counters, in the same commit as the rows they count."""
        for name, change in self.counts.items():
            if change:
                self.run(st.COUNT, {"name": name, "value": change})
        self.counts.clear()


def read(connection: Connection) -> dict[str, int]:
    """Every counter by name."""
    return {row.name: row.value for row in connection.execute(select(counters))}


def dropped(reason: str) -> str:
    """Name of the counter of a drop reason."""
    return f"dropped:{reason}"


def untracked(reason: str) -> str:
    return f"untracked:{reason}"


def scored(score: int) -> str:
    return f"score:{score}"
