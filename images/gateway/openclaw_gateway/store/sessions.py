"""Which session a request belongs to, and what its arrival means for the session's other turns.

Two users never share a session: an explicit id counts only under the same API key, and without one a request joins a
session only when exactly one holds the conversation it continues.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import orjson
from sqlalchemy import ColumnElement, delete, update

from openclaw_gateway import conversation, identifiers
from openclaw_gateway.store import statements as st
from openclaw_gateway.store.prepared import Prepared
from openclaw_gateway.store.schema import Drop, State, contents, next_states, turns
from openclaw_gateway.store.transaction import AnyRow, Policy, Topic, Transaction, dropped

_RETRIED_WITHIN_SEC = 900.0  # an unfinished attempt older than this is not waited for: its words begin a new turn


class Arrival(msgspec.Struct, frozen=True):
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


class Session(NamedTuple):
    id: int
    name: str
    explicit: bool


class Matched(msgspec.Struct, frozen=True):
    """The session a request continues; None: a new one."""

    session: Session | None
    retried: AnyRow | None = None
    """The earlier attempt at the same turn."""


def match(tx: Transaction, arrival: Arrival) -> Matched:
    name = arrival.session
    found = by_name(tx, arrival.owner, name) if name is not None else _by_conversation(tx, arrival)
    if found is not None:
        return Matched(found, _earlier_attempt(tx, arrival, found))
    retried = _anonymous_attempt(tx, arrival) if name is None and not arrival.outline.prefixes else None
    return Matched(_session(tx, st.SESSION_BY_ID, b_id=retried.session_id) if retried else None, retried)


def next_turn(tx: Transaction, arrival: Arrival, session: Session | None) -> tuple[Session, int]:
    """The session (a new one if there is none) and the number of its next turn, from 1."""
    if session is not None:
        (row,) = tx.run(st.NEXT_NUMBER, {"b_id": session.id, "b_now": tx.now, "b_done": arrival.done})
        return session, int(row.turns)
    name, explicit = arrival.session or _drawn(tx.now), arrival.session is not None
    values = {"owner": arrival.owner, "name": name, "explicit": explicit, "turns": 1}
    (row,) = tx.run(st.INSERT_SESSION, values | {"done": arrival.done, "seen_at": tx.now})
    return Session(row.id, name, explicit), 1


def _drawn(now: float) -> str:
    """A name nobody can guess. Names drawn one after another lie beside each other in the index."""
    return f"anon-{int(now):08x}{identifiers.draw(8)}"


def touch(tx: Transaction, session: Session, *, done: bool) -> None:
    tx.run(st.TOUCH_SESSION, {"b_id": session.id, "b_now": tx.now, "b_done": done})


def seen(tx: Transaction, session_id: int, before: float, policy: Policy) -> None:
    """Something happened in a session that was last seen `before`; a hundredth of the time it may idle is no news."""
    if tx.now - before > policy.session_idle_sec / 100:
        tx.run(st.SEE_SESSION, {"b_id": session_id, "b_now": tx.now})


def attach_next_state(tx: Transaction, arrival: Arrival, session: Session, policy: Policy) -> int | None:
    """Give the turn this request continues its next state; the turn's id, or None when there is none to give.

    A client with its own id that rewrote the history after turn k gives the messages after its last answer, `edited`.
    """
    known = _continued(tx, arrival, session)
    if known is not None and known.turn.state == State.NEXT_STATE:
        return _attach(tx, known.turn, conversation.next_state(arrival.messages, known.length), False, policy)
    answers_since = arrival.outline.tail_start > (known.length if known else 0)
    if session.explicit and answers_since:
        after = known.turn.number if known else 0
        waiting = first(tx.run(st.LATEST_WAITING, {"b_session": session.id, "b_after": after}))
        # The same prompt once more is another attempt at that turn, not a reaction to it.
        if waiting is not None and waiting.tail != arrival.outline.tail:
            rest = conversation.next_state(arrival.messages, arrival.outline.tail_start)
            return _attach(tx, waiting, rest, True, policy)
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


def first(rows: Sequence[AnyRow]) -> AnyRow | None:
    return rows[0] if rows else None


def forget_contents(tx: Transaction, ids: Sequence[int]) -> None:
    """Remove what was said in turns that will never be trained."""
    if ids:
        for table in (contents, next_states):
            tx.connection.execute(delete(table).where(table.c.turn_id.in_(ids)))


@dataclass(frozen=True)
class _Continued:
    turn: AnyRow
    length: int


def _continued(tx: Transaction, arrival: Arrival, session: Session) -> _Continued | None:
    """The turn with the longest matching history; among equals the newest that still waits."""
    lengths = {prefix.chain: prefix.length for prefix in arrival.outline.prefixes[: st.MOST_PREFIXES]}
    if not lengths:
        return None
    rows = tx.run_in(st.CONTINUED, {"b_session": session.id, "b_owner": arrival.owner}, list(lengths))
    if not rows:
        return None
    best = max(rows, key=lambda row: (lengths[row.chain], row.state == State.NEXT_STATE, row.id))
    return _Continued(best, lengths[best.chain])


def _attach(
    tx: Transaction, turn: AnyRow, messages: Sequence[conversation.Message], edited: bool, policy: Policy
) -> int | None:
    if not messages:
        return None
    tx.run(st.ATTACH, {"b_id": turn.id, "b_now": tx.now, "b_fire": policy.fire_on_turn_end})
    counted = turn.grace_until > tx.now
    tx.moved(
        out_of=State.NEXT_STATE if counted else None, into=State.JUDGE if counted or policy.fire_on_turn_end else None
    )
    said = orjson.dumps(list(messages))
    tx.run(st.INSERT_NEXT_STATE, {"turn_id": turn.id, "messages": said, "edited": edited})
    tx.touched.add(Topic.JUDGE)
    return int(turn.id)


def by_name(tx: Transaction, owner: str, name: str) -> Session | None:
    """The session a client named under this key."""
    return _session(tx, st.SESSION_BY_NAME, b_owner=owner, b_name=name)


def _session(tx: Transaction, statement: Prepared, **given: Any) -> Session | None:
    row = first(tx.run(statement, given))
    return Session(row.id, row.name, bool(row.explicit)) if row is not None else None


def _by_conversation(tx: Transaction, arrival: Arrival) -> Session | None:
    """The one open session without an explicit id that holds this conversation."""
    lengths = {prefix.chain: prefix.length for prefix in arrival.outline.prefixes[: st.MOST_PREFIXES]}
    if not lengths:
        return None
    rows = tx.run_in(st.SAME_CONVERSATION, {"b_owner": arrival.owner}, list(lengths))
    if not rows:
        return None
    longest = max(lengths[row.chain] for row in rows)
    found = {
        row.session_id
        for row in rows
        if lengths[row.chain] == longest and not _contradict(json.loads(row.hints), arrival.hints)
    }
    return _session(tx, st.SESSION_BY_ID, b_id=found.pop()) if len(found) == 1 else None


def _contradict(one: dict[str, str], other: dict[str, str]) -> bool:
    return any(one[key] != other[key] for key in one.keys() & other.keys())


def _earlier_attempt(tx: Transaction, arrival: Arrival, session: Session) -> AnyRow | None:
    """The newest turn of the session that this request repeats as a retry."""
    given = _body(tx, arrival) | {"b_session": session.id}
    if arrival.is_retry:
        return first(tx.run(st.RETRIED_IN_SESSION, given))
    return _unfinished_or_same_key(tx, given, st.UNFINISHED_IN_SESSION, st.SAME_KEY_IN_SESSION)


def _anonymous_attempt(tx: Transaction, arrival: Arrival) -> AnyRow | None:
    """Without a session id or a history a retry is told by its key, or by an attempt whose answer nobody received.

    x-stainless-retry-count alone could be anybody's: two users may open with the same words.
    """
    row = _unfinished_or_same_key(tx, _body(tx, arrival), st.UNFINISHED_ANONYMOUS, st.SAME_KEY_ANONYMOUS)
    return None if row is None or _contradict(json.loads(row.hints), arrival.hints) else row


def _unfinished_or_same_key(
    tx: Transaction, given: dict[str, Any], unfinished: Prepared, same_key: Prepared
) -> AnyRow | None:
    """The newer one, if both are found."""
    rows = tx.run(unfinished, given)
    if given["b_key"] is not None:
        rows += tx.run(same_key, given)
    return max(rows, key=lambda row: row.id, default=None)


def _body(tx: Transaction, arrival: Arrival) -> dict[str, Any]:
    return {
        "b_owner": arrival.owner,
        "b_hash": arrival.body_hash,
        "b_key": arrival.idempotency_key,
        "b_since": tx.now - _RETRIED_WITHIN_SEC,
    }
