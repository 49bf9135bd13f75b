"""Tables of the experience store, in SQLAlchemy Core so that SQLite and PostgreSQL share them.

A turn's row is narrow, for it is rewritten at each step of its life; what was said and sampled lies in `contents`
and `next_states`, written once. Times are Unix seconds: leases must outlive the process.
"""

from enum import StrEnum
from typing import Any, TypeVar

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Select,
    String,
    Table,
    UniqueConstraint,
    literal_column,
)

Q = TypeVar("Q", bound=Select[Any])


class State(StrEnum):
    """Where a turn is. Untracked requests have no row."""

    GENERATING = "generating"
    NEXT_STATE = "next_state"
    JUDGE = "judge"
    QUEUED = "queued"
    LEASED = "leased"
    TRAINED = "trained"
    DROPPED = "dropped"


LIVE = (State.GENERATING, State.NEXT_STATE, State.JUDGE, State.QUEUED, State.LEASED)
ENDED = (State.TRAINED, State.DROPPED)


class Drop(StrEnum):
    """Reasons the gateway drops a turn for; judge and trainer bring their own."""

    FINAL = "final"
    EMPTY = "empty"
    NO_IDS = "no_ids"
    MODIFIED_LOGITS = "modified_logits"
    CLIENT_GONE = "client_gone"
    UPSTREAM_ERROR = "upstream_error"
    GATEWAY_LOST = "gateway_lost"
    QUEUE_FULL = "queue_full"
    ERASED = "erased"


UNFINISHED = (Drop.CLIENT_GONE, Drop.UPSTREAM_ERROR, Drop.GATEWAY_LOST)
"""The client never had the whole answer: the same request again is the same turn."""


class Untracked(StrEnum):
    """Reasons a request is served without a record; only counted."""

    SIDE = "side"
    OPT_OUT = "opt_out"
    STALE = "stale"
    QUEUE_FULL = "queue_full"
    STORE_DOWN = "store_down"
    REPLACED = "replaced"
    N = "n"
    PREFILL = "prefill"
    COMPLETION = "completion"


metadata = MetaData()
_Id = BigInteger().with_variant(Integer, "sqlite")
"""Never reused and never exhausted; SQLite counts on only in a column called INTEGER."""

sessions = Table(
    "sessions",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("owner", String(32), nullable=False),  # fingerprint of the API key
    Column("name", String(256), nullable=False),  # the client's X-Session-Id, or drawn by us
    Column("explicit", Boolean, nullable=False),
    Column("turns", Integer, nullable=False),  # highest turn number given
    Column("done", Boolean, nullable=False),
    Column("seen_at", Float, nullable=False),
    UniqueConstraint("owner", "name"),
    sqlite_autoincrement=True,
)

turns = Table(
    "turns",
    metadata,
    Column("id", _Id, primary_key=True),  # never reused: an acknowledgement may come twice
    Column("session_id", _Id, nullable=False),
    Column("owner", String(32), nullable=False),
    Column("session", String(256), nullable=False),
    Column("number", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    Column("reason", String(64)),
    Column("gateway", String(64), nullable=False),  # incarnation that generates it
    Column("alive_until", Float, nullable=False),  # its heartbeat while generating
    Column("body_hash", LargeBinary, nullable=False),
    Column("idempotency_key", String(256)),
    Column("hints", String(256), nullable=False),  # JSON: fingerprints of user, prompt_cache_key, metadata.user_id
    Column("tail", LargeBinary, nullable=False),  # chain of the messages after the prompt's last answer
    Column("chain", LargeBinary),  # chain of prompt + answer, once finished
    Column("began_at", Float, nullable=False),
    Column("grace_until", Float, nullable=False),  # counts in the backlog until then while it waits for others
    Column("fire", Boolean, nullable=False),  # may be judged
    Column("judge_at", Float),
    Column("lease", String(64)),
    Column("lease_until", Float),
    Column("lease_epoch", BigInteger),  # trainer epoch that leased it last
    Column("score", Integer),
    Column("votes", String(256)),
    Column("ready_at", Float),
    Index("turns_backlog", "state", "fire", "grace_until"),
    Index("turns_session", "session_id"),
    sqlite_autoincrement=True,
)


def is_in(state: State) -> ColumnElement[bool]:
    """Written out, so that the state's own index serves it; a parameter would not."""
    return turns.c.state == literal_column(f"'{state}'")


def _index_of(where: ColumnElement[bool], name: str, *columns: Column[Any]) -> Index:
    """Only of some turns: it costs nothing while a turn is none of them."""
    return Index(name, *columns, sqlite_where=where, postgresql_where=where)


def has_reason(*reasons: str) -> ColumnElement[bool]:
    """Written out likewise."""
    return turns.c.reason.in_([literal_column(f"'{reason}'") for reason in reasons])


def in_order(query: Q, index: str) -> Q:
    """Without statistics SQLite takes the broader index and sorts what it finds."""
    return query.with_hint(turns, f"INDEXED BY {index}", "sqlite")


_index_of(is_in(State.JUDGE), "turns_judge", turns.c.judge_at, turns.c.id)
_index_of(is_in(State.QUEUED), "turns_queue", turns.c.ready_at, turns.c.id)
_index_of(turns.c.chain.is_not(None), "turns_chain", turns.c.owner, turns.c.chain)
_index_of(has_reason(*UNFINISHED), "turns_unfinished", turns.c.owner, turns.c.body_hash)
_index_of(turns.c.idempotency_key.is_not(None), "turns_keyed", turns.c.owner, turns.c.idempotency_key)
RETIRED_INDEXES = ("sessions_seen", "turns_body")
"""Those of earlier releases, which only cost."""

contents = Table(
    "contents",
    metadata,
    Column("turn_id", _Id, primary_key=True, autoincrement=False),
    Column("messages", LargeBinary, nullable=False),  # JSON
    Column("response", LargeBinary, nullable=False),  # JSON
    Column("prompt_ids", LargeBinary, nullable=False),  # int32, little endian
    Column("output_ids", LargeBinary, nullable=False),  # int32
    Column("logprobs", LargeBinary, nullable=False),  # float64: the engine's digits, not rounded again
    Column("spans", LargeBinary, nullable=False),  # JSON
    Column("sampling", LargeBinary, nullable=False),  # JSON
)

next_states = Table(
    "next_states",
    metadata,
    Column("turn_id", _Id, primary_key=True, autoincrement=False),
    Column("messages", LargeBinary, nullable=False),  # JSON
    Column("edited", Boolean, nullable=False),
)

opt_outs = Table(
    "opt_outs",
    metadata,
    Column("owner", String(32), primary_key=True),
    Column("mark", LargeBinary, primary_key=True),  # keyed hash of a message nobody may train on
    Column("until", Float, nullable=False),
)

counters = Table(
    "counters",
    metadata,
    Column("name", String(96), primary_key=True),
    Column("value", BigInteger, nullable=False),
)
