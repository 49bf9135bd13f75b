"""What people ask of the store: copies of what is kept, and that one session be forgotten."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import orjson
from sqlalchemy import ColumnElement, delete, select

from openclaw_core import wire
from openclaw_gateway.store import turns as life
from openclaw_gateway.store.schema import LIVE, Drop, State, contents, next_states, sessions, turns
from openclaw_gateway.store.sessions import forget_contents
from openclaw_gateway.store.transaction import AnyRow, Topic, Transaction

PAGE = 64
"""Turns read in one go: the writer is held for milliseconds, however much is exported."""


@dataclass(frozen=True)
class Page:
    """Some turns as lines of JSON (`wire.ExportedTurn`), and where to go on; None: that was all."""

    lines: bytes
    last_id: int | None


def page(tx: Transaction, after: int, states: Sequence[str], session: str | None) -> Page:
    """Turns with a higher id than `after`, oldest first; those that still generate are left out."""
    where: list[ColumnElement[bool]] = [turns.c.id > after, turns.c.state != State.GENERATING]
    if states:
        where.append(turns.c.state.in_(states))
    if session is not None:
        where.append(turns.c.session == session)
    rows = tx.connection.execute(
        select(
            turns,
            contents,
            next_states.c.messages.label("next_state"),
            next_states.c.edited,
        )
        .join(contents, contents.c.turn_id == turns.c.id, isouter=True)
        .join(next_states, next_states.c.turn_id == turns.c.id, isouter=True)
        .where(*where)
        .order_by(turns.c.id)
        .limit(PAGE)
    ).all()
    lines = b"".join(_line(row) for row in rows)
    return Page(lines, rows[-1].id if len(rows) == PAGE else None)


def erase(tx: Transaction, request: wire.EraseSession) -> wire.Erased:
    """Delete the sessions of this name and all their turns. What they were counted as stays counted."""
    ours: ColumnElement[bool] = turns.c.session == request.session
    named: ColumnElement[bool] = sessions.c.name == request.session
    if request.owner is not None:
        ours, named = ours & (turns.c.owner == request.owner), named & (sessions.c.owner == request.owner)
    found = tx.connection.execute(select(turns.c.id, turns.c.state).where(ours)).all()
    life.drop_turns(tx, [row.id for row in found if row.state in LIVE], Drop.ERASED)
    ids = [row.id for row in found]
    forget_contents(tx, ids)
    tx.connection.execute(delete(turns).where(ours))
    gone = tx.connection.execute(delete(sessions).where(named))
    tx.touched |= {Topic.CAPACITY, Topic.JUDGE}
    return wire.Erased(turns=len(ids), sessions=gone.rowcount)


def _line(row: AnyRow) -> bytes:
    record = {
        "id": row.id,
        "session": row.session,
        "owner": row.owner,
        "turn": row.number,
        "state": row.state,
        "reason": row.reason,
        "began_at": row.began_at,
        "score": row.score,
        "votes": _json(row.votes),
        "messages": _json(row.messages),
        "response": _json(row.response),
        "next_state": _json(row.next_state),
        "edited": bool(row.edited),
        "prompt_ids": _numbers("i", row.prompt_ids),
        "output_ids": _numbers("i", row.output_ids),
        "rollout_logprobs": _numbers("d", row.logprobs),
        "spans": _json(row.spans),
        "sampling": _json(row.sampling),
    }
    return orjson.dumps(record) + b"\n"


def _json(stored: bytes | str | None) -> orjson.Fragment | None:
    return orjson.Fragment(stored) if stored is not None else None


def _numbers(kind: Literal["i", "d"], stored: bytes | None) -> list[int] | list[float] | None:
    return array(kind, stored).tolist() if stored is not None else None
