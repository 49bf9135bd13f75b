"""The judge's side: lease turns that have their next state, score them, or give them back.

Slots are the store's: at most `judge_slots` turns are leased at once, over all workers. A lease is a token; whoever
comes late with an old one changes nothing.
"""

import secrets
from collections.abc import Sequence

import orjson
from sqlalchemy import func, select, update
from sqlalchemy.sql import ColumnElement

from openclaw_core import wire
from openclaw_gateway.store import compared
from openclaw_gateway.store import turns as life
from openclaw_gateway.store.schema import Drop, State, contents, in_order, is_in, next_states, turns
from openclaw_gateway.store.transaction import AnyRow, Policy, Topic, Transaction, scored

_WAITS = is_in(State.JUDGE)


def lease(tx: Transaction, request: wire.LeaseTurns, policy: Policy) -> list[wire.JudgeTurn]:
    """The oldest turns by the time their next state came; fewer than asked when slots are taken."""
    expire(tx)
    taken = tx.connection.execute(
        select(func.count()).select_from(turns).where(_WAITS, turns.c.lease.is_not(None))
    ).scalar_one()
    free = min(request.max_turns, policy.judge_slots - int(taken))
    if free <= 0:
        return []
    ids = _oldest(tx, free, policy)
    if not ids:
        return []
    token = f"{request.worker[:32]}-{secrets.token_hex(8)}"
    tx.connection.execute(
        update(turns).where(turns.c.id.in_(ids)).values(lease=token, lease_until=tx.now + request.lease_sec)
    )
    return [_shown(row, token) for row in _with_contents(tx, ids)]


def score(tx: Transaction, request: wire.ScoreTurn, policy: Policy, canary_epoch: int | None = None) -> list[int]:
    """The turn becomes a sample. A queue that is full drops its oldest, or this one, as its policy says."""
    if not _held(tx, request.id, request.lease):
        return []
    if canary_epoch is not None:  # also when it is dropped then: it was judged
        compared.count(tx, canary_epoch, request.id, request.score)
    if life.is_full(tx, policy) and not (policy.drop_policy == "dropOldest" and life.drop_oldest_queued(tx)):
        life.drop_turns(tx, [request.id], Drop.QUEUE_FULL)
        return [request.id]
    tx.connection.execute(
        update(turns)
        .where(turns.c.id == request.id)
        .values(
            state=State.QUEUED,
            score=request.score,
            votes=orjson.dumps(request.votes).decode(),
            ready_at=tx.now,
            lease=None,
            lease_until=None,
        )
    )
    tx.count(scored(request.score))
    tx.touched |= {Topic.QUEUE, Topic.JUDGE}
    return [request.id]


def drop(tx: Transaction, request: wire.DropTurn) -> list[int]:
    if not _held(tx, request.id, request.lease):
        return []
    life.drop_turns(tx, [request.id], request.reason[:64])
    tx.touched.add(Topic.JUDGE)
    return [request.id]


def extend(tx: Transaction, request: wire.ExtendTurns) -> list[int]:
    held = _all_held(tx, request.ids, request.leases)
    until = tx.now + request.lease_sec
    tx.connection.execute(update(turns).where(turns.c.id.in_(held)).values(lease_until=until))
    return held


def release(tx: Transaction, request: wire.ReleaseTurns) -> list[int]:
    """Back to their place in the order."""
    held = _all_held(tx, request.ids, request.leases)
    tx.connection.execute(update(turns).where(turns.c.id.in_(held)).values(lease=None, lease_until=None))
    if held:
        tx.touched.add(Topic.JUDGE)
    return held


def expire(tx: Transaction) -> None:
    """Leases that ran out free their slots; the turns keep their place."""
    freed = tx.connection.execute(
        update(turns).where(_WAITS, turns.c.lease_until <= tx.now).values(lease=None, lease_until=None)
    )
    if freed.rowcount:
        tx.touched.add(Topic.JUDGE)


def _oldest(tx: Transaction, most: int, policy: Policy) -> list[int]:
    where: list[ColumnElement[bool]] = [_WAITS, turns.c.lease.is_(None), turns.c.fire.is_(True)]
    if policy.judge_in_order:
        older = turns.alias("older")
        awaited = select(older.c.id).where(
            older.c.session_id == turns.c.session_id, older.c.state == State.JUDGE, older.c.number < turns.c.number
        )
        where.append(~awaited.exists())
    query = in_order(select(turns.c.id), "turns_judge").where(*where).order_by(turns.c.judge_at, turns.c.id).limit(most)
    return [row.id for row in tx.connection.execute(query)]


def _with_contents(tx: Transaction, ids: Sequence[int]) -> Sequence[AnyRow]:
    return tx.connection.execute(
        select(
            turns.c.id,
            turns.c.session,
            turns.c.number,
            contents.c.messages,
            contents.c.response,
            next_states.c.messages.label("next_state"),
            next_states.c.edited,
        )
        .join(contents, contents.c.turn_id == turns.c.id)
        .join(next_states, next_states.c.turn_id == turns.c.id)
        .where(turns.c.id.in_(ids))
        .order_by(turns.c.judge_at, turns.c.id)
    ).all()


def _shown(row: AnyRow, token: str) -> wire.JudgeTurn:
    return wire.JudgeTurn(
        id=row.id,
        lease=token,
        session=row.session,
        turn=row.number,
        messages=orjson.loads(row.messages),
        response=orjson.loads(row.response),
        next_state=orjson.loads(row.next_state),
        edited=bool(row.edited),
    )


def _held(tx: Transaction, turn_id: int, token: str) -> bool:
    return bool(_all_held(tx, [turn_id], [token]))


def _all_held(tx: Transaction, ids: Sequence[int], leases: Sequence[str]) -> list[int]:
    tokens = dict(zip(ids, leases, strict=False))
    rows = tx.connection.execute(select(turns.c.id, turns.c.lease).where(_WAITS, turns.c.id.in_(list(tokens))))
    return sorted(row.id for row in rows if row.lease is not None and row.lease == tokens[row.id])
