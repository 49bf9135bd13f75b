"""What time does to the store: sessions go idle, leases run out, ended turns are forgotten.

Each step is bounded, so that upkeep never holds the writer for long.
"""

from collections.abc import Collection

from sqlalchemy import delete, func, select

from openclaw_gateway.store import compared, judging, opt_outs, samples
from openclaw_gateway.store import sessions as life
from openclaw_gateway.store import turns as turn_life
from openclaw_gateway.store.drain import Occupancy
from openclaw_gateway.store.schema import ENDED, LIVE, sessions, turns
from openclaw_gateway.store.transaction import RECORDED, Policy, Topic, Transaction, read

_FORGET_AT_ONCE = 500


def upkeep(tx: Transaction, policy: Policy, alive: Collection[int]) -> Occupancy:
    """`alive`: turns that the calling gateway generates. What the backlog is then."""
    turn_life.heartbeat(tx, alive)
    turn_life.lose_silent(tx)
    judging.expire(tx)
    samples.expire(tx)
    end_idle_sessions(tx, policy)
    forget_ended_turns(tx, policy)
    opt_outs.forget_old(tx)
    # A grace that ran out frees a place without any commit of its own.
    tx.touched |= {Topic.CAPACITY}
    tx.flush()
    counted = read(tx.connection)
    compared.forget_old(tx, counted)
    return Occupancy(counted.get(RECORDED, 0), turn_life.backlog(tx).total())


def end_idle_sessions(tx: Transaction, policy: Policy) -> None:
    """Silent and finished sessions end; they are forgotten once none of their turns lives."""
    over = (sessions.c.seen_at <= tx.now - policy.session_idle_sec) | sessions.c.done.is_(True)
    life.end(tx, turns.c.session_id.in_(select(sessions.c.id).where(over)))
    lives = select(turns.c.id).where(turns.c.session_id == sessions.c.id, turns.c.state.in_(LIVE))
    tx.connection.execute(delete(sessions).where(over, ~lives.exists()))


def forget_ended_turns(tx: Transaction, policy: Policy) -> int:
    """Delete ended turns beyond what is kept, oldest first; how many. Late acknowledgements need the newest."""
    newest = tx.connection.execute(select(func.max(turns.c.id))).scalar() or 0
    oldest = select(turns.c.id, turns.c.state, turns.c.began_at).order_by(turns.c.id).limit(_FORGET_AT_ONCE)
    ids = [
        row.id
        for row in tx.connection.execute(oldest)
        if row.state in ENDED and (row.id <= newest - policy.kept_turns or row.began_at <= tx.now - policy.kept_sec)
    ]
    if ids:
        life.forget_contents(tx, ids)
        tx.connection.execute(delete(turns).where(turns.c.id.in_(ids)))
    return len(ids)
