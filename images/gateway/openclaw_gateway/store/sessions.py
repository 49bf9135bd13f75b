"""Which session a request belongs to, and what its arrival means for the session's other turns.

Two users never share a session: an explicit id counts only under the same API key, and without one a request joins a
session only when exactly one holds the conversation it continues.
"""

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import ColumnElement, and_, delete, insert, or_, select, update

from openclaw_gateway import conversation
from openclaw_gateway.store.schema import UNFINISHED, Drop, State, contents, next_states, sessions, turns
from openclaw_gateway.store.transaction import AnyRow, Policy, Topic, Transaction, dropped

_MOST_PREFIXES = 64  # a match further back than 64 answers is not looked for


@dataclass(frozen=True)
class Arrival:
    """A request, as far as the store cares."""

    owner: str
    """Fingerprint of the API key."""
    session: str | None
    """The client's own session id."""
    done: bool
    messages: Sequence[conversation.Message]
    outline: conversation.Outline
    hints: dict[str, str]
    """Fingerprints of `user`, `prompt_cache_key`, `metadata.user_id`, where given."""
    body_hash: bytes
    idempotency_key: str | None
    is_retry: bool
    """The client says so (x-stainless-retry-count ≥ 1)."""
    gateway: str
    untracked: str | None = None
    """Why it is served without a record, if it is."""
    opt_out: bool = False


@dataclass(frozen=True)
class Matched:
    """The session a request continues; `row` None: a new one."""

    row: AnyRow | None
    retried: AnyRow | None = None
    """The earlier attempt at the same turn."""


def match(tx: Transaction, arrival: Arrival) -> Matched:
    if arrival.session is not None:
        row = by_name(tx, arrival.owner, arrival.session)
        return Matched(row, _earlier_attempt(tx, arrival, row.id) if row else None)
    row = _by_conversation(tx, arrival)
    retried = _anonymous_attempt(tx, arrival)
    if retried is None or (arrival.outline.prefixes and (row is None or row.id != retried.session_id)):
        return Matched(row)
    return Matched(_by_id(tx, retried.session_id), retried)


def create(tx: Transaction, arrival: Arrival) -> AnyRow:
    values = {
        "owner": arrival.owner,
        "name": arrival.session or f"anon-{secrets.token_hex(8)}",
        "explicit": arrival.session is not None,
        "turns": 0,
        "done": arrival.done,
        "seen_at": tx.now,
    }
    key = tx.connection.execute(insert(sessions).values(**values)).inserted_primary_key
    row = _by_id(tx, key[0] if key else 0)
    if row is None:
        raise RuntimeError("a session just inserted is not there")
    return row


def touch(tx: Transaction, session_id: int, *, done: bool) -> None:
    tx.connection.execute(update(sessions).where(sessions.c.id == session_id).values(seen_at=tx.now, done=done))


def seen(tx: Transaction, session_id: int) -> None:
    tx.connection.execute(update(sessions).where(sessions.c.id == session_id).values(seen_at=tx.now))


def is_done(tx: Transaction, session_id: int) -> bool:
    """True once the client said so, or the session is forgotten."""
    done = tx.connection.execute(select(sessions.c.done).where(sessions.c.id == session_id)).scalar()
    return done is None or bool(done)


def next_number(tx: Transaction, session: AnyRow) -> int:
    """Number of the session's next turn, from 1."""
    row = tx.connection.execute(
        update(sessions)
        .where(sessions.c.id == session.id)
        .values(turns=sessions.c.turns + 1)
        .returning(sessions.c.turns)
    ).first()
    return int(row.turns) if row is not None else 1


def attach_next_state(tx: Transaction, arrival: Arrival, session: AnyRow, policy: Policy) -> int | None:
    """Give the turn this request continues its next state; the turn's id, or None when there is none to give.

    A client with its own id that rewrote the history after turn k gives the messages after its last answer, `edited`.
    """
    known = _continued(tx, arrival, session.id)
    if known is not None and known.turn.state == State.NEXT_STATE:
        return _attach(tx, known.turn.id, conversation.next_state(arrival.messages, known.length), False, policy)
    answers_since = arrival.outline.tail_start > (known.length if known else 0)
    if session.explicit and answers_since:
        waiting = _latest_waiting(tx, session.id, known.turn.number if known else 0)
        # The same prompt once more is another attempt at that turn, not a reaction to it.
        if waiting is not None and waiting.tail != arrival.outline.tail:
            rest = conversation.next_state(arrival.messages, arrival.outline.tail_start)
            return _attach(tx, waiting.id, rest, True, policy)
    return None


def end(tx: Transaction, ours: ColumnElement[bool]) -> None:
    """Nothing more is said in `ours`: turns without a next state are final, the others may be judged."""
    final = tx.connection.execute(
        update(turns)
        .where(ours, turns.c.state == State.NEXT_STATE)
        .values(state=State.DROPPED, reason=Drop.FINAL)
        .returning(turns.c.id)
    ).all()
    tx.count(dropped(Drop.FINAL), len(final))
    fired = tx.connection.execute(
        update(turns).where(ours, turns.c.state == State.JUDGE, turns.c.fire.is_(False)).values(fire=True)
    )
    forget_contents(tx, [row.id for row in final])
    if final:
        tx.touched.add(Topic.CAPACITY)
    if fired.rowcount:
        tx.touched.add(Topic.JUDGE)


def forget_contents(tx: Transaction, ids: Sequence[int]) -> None:
    """Remove what was said in turns that will never be trained."""
    if ids:
        for table in (contents, next_states):
            tx.connection.execute(delete(table).where(table.c.turn_id.in_(ids)))


@dataclass(frozen=True)
class _Continued:
    turn: AnyRow
    length: int


def _continued(tx: Transaction, arrival: Arrival, session_id: int) -> _Continued | None:
    """The turn with the longest matching history; among equals the newest that still waits."""
    lengths = {prefix.chain: prefix.length for prefix in arrival.outline.prefixes[:_MOST_PREFIXES]}
    if not lengths:
        return None
    rows = tx.connection.execute(
        select(turns.c.id, turns.c.number, turns.c.state, turns.c.chain).where(
            turns.c.session_id == session_id, turns.c.owner == arrival.owner, turns.c.chain.in_(list(lengths))
        )
    ).all()
    if not rows:
        return None
    best = max(rows, key=lambda row: (lengths[row.chain], row.state == State.NEXT_STATE, row.id))
    return _Continued(best, lengths[best.chain])


def _latest_waiting(tx: Transaction, session_id: int, after_number: int) -> AnyRow | None:
    return tx.connection.execute(
        select(turns.c.id, turns.c.tail)
        .where(turns.c.session_id == session_id, turns.c.state == State.NEXT_STATE, turns.c.number > after_number)
        .order_by(turns.c.number.desc(), turns.c.id.desc())
        .limit(1)
    ).first()


def _attach(
    tx: Transaction, turn_id: int, messages: Sequence[conversation.Message], edited: bool, policy: Policy
) -> int | None:
    if not messages:
        return None
    tx.connection.execute(
        update(turns)
        .where(turns.c.id == turn_id)
        .values(
            state=State.JUDGE,
            judge_at=tx.now,
            fire=policy.fire_on_turn_end,
        )
    )
    tx.connection.execute(
        insert(next_states).values(turn_id=turn_id, messages=orjson.dumps(list(messages)), edited=edited)
    )
    tx.touched.add(Topic.JUDGE)
    return turn_id


def by_name(tx: Transaction, owner: str, name: str) -> AnyRow | None:
    """The session a client named under this key."""
    return tx.connection.execute(
        select(sessions).where(sessions.c.owner == owner, sessions.c.name == name, sessions.c.explicit.is_(True))
    ).first()


def _by_id(tx: Transaction, session_id: int) -> AnyRow | None:
    return tx.connection.execute(select(sessions).where(sessions.c.id == session_id)).first()


def _by_conversation(tx: Transaction, arrival: Arrival) -> AnyRow | None:
    """The one open session without an explicit id that holds this conversation."""
    lengths = {prefix.chain: prefix.length for prefix in arrival.outline.prefixes[:_MOST_PREFIXES]}
    if not lengths:
        return None
    rows = tx.connection.execute(
        select(turns.c.session_id, turns.c.chain, turns.c.hints)
        .join(sessions, sessions.c.id == turns.c.session_id)
        .where(
            turns.c.owner == arrival.owner,
            turns.c.chain.in_(list(lengths)),
            sessions.c.explicit.is_(False),
            sessions.c.done.is_(False),
        )
    ).all()
    if not rows:
        return None
    longest = max(lengths[row.chain] for row in rows)
    found = {
        row.session_id
        for row in rows
        if lengths[row.chain] == longest and not _contradict(json.loads(row.hints), arrival.hints)
    }
    return _by_id(tx, found.pop()) if len(found) == 1 else None


def _contradict(one: dict[str, str], other: dict[str, str]) -> bool:
    return any(one[key] != other[key] for key in one.keys() & other.keys())


def _earlier_attempt(tx: Transaction, arrival: Arrival, session_id: int) -> AnyRow | None:
    """The newest turn of the session that this request repeats as a retry."""
    again = or_(
        and_(turns.c.state == State.DROPPED, turns.c.reason.in_(UNFINISHED)),
        turns.c.idempotency_key == arrival.idempotency_key if arrival.idempotency_key else turns.c.id < 0,
        turns.c.id > 0 if arrival.is_retry else turns.c.id < 0,
    )
    return _newest(tx, arrival, turns.c.session_id == session_id, again)


def _anonymous_attempt(tx: Transaction, arrival: Arrival) -> AnyRow | None:
    """Without a session id a retry is told by its key, or by an attempt whose answer nobody received.

    x-stainless-retry-count alone could be anybody's: two users may open with the same words.
    """
    again = and_(turns.c.state == State.DROPPED, turns.c.reason.in_(UNFINISHED))
    if arrival.idempotency_key:
        again = or_(again, turns.c.idempotency_key == arrival.idempotency_key)
    anonymous = turns.c.session_id.in_(
        select(sessions.c.id).where(sessions.c.owner == arrival.owner, sessions.c.explicit.is_(False))
    )
    row = _newest(tx, arrival, anonymous, again)
    return None if row is None or _contradict(json.loads(row.hints), arrival.hints) else row


def _newest(tx: Transaction, arrival: Arrival, *where: Any) -> AnyRow | None:
    return tx.connection.execute(
        select(turns)
        .where(turns.c.owner == arrival.owner, turns.c.body_hash == arrival.body_hash, *where)
        .order_by(turns.c.id.desc())
        .limit(1)
    ).first()
