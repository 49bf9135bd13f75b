"""The accounting identity, read in one transaction.

served = recorded + Σ untracked;  recorded = trained + Σ dropped + queued + leased + Σ waiting. What ended is counted
in the same commit that ends it, what lives is counted from its rows: no crash can come between.
"""

from collections.abc import Mapping

from sqlalchemy import func, select

from openclaw_core import wire
from openclaw_gateway.store import compared
from openclaw_gateway.store.schema import LIVE, State, turns
from openclaw_gateway.store.transaction import RECORDED, SERVED, TRAINED, TRAINER_EPOCH, Policy, Transaction, read
from openclaw_gateway.store.turns import backlog, room


def stats(tx: Transaction, policy: Policy, refused: Mapping[str, int]) -> wire.Stats:
    tx.flush()
    counters = read(tx.connection)
    rows = tx.connection.execute(
        select(turns.c.state, func.count().label("many")).where(turns.c.state.in_(LIVE)).group_by(turns.c.state)
    )
    live = {row.state: int(row.many) for row in rows}
    return wire.Stats(
        served=counters.get(SERVED, 0),
        recorded=counters.get(RECORDED, 0),
        untracked=_named(counters, "untracked:"),
        trained=counters.get(TRAINED, 0),
        dropped=_named(counters, "dropped:"),
        queued=live.get(State.QUEUED, 0),
        leased=live.get(State.LEASED, 0),
        waiting=wire.Waiting(
            generating=live.get(State.GENERATING, 0),
            next_state=live.get(State.NEXT_STATE, 0),
            judge=live.get(State.JUDGE, 0),
        ),
        capacity=room(backlog(tx), policy),
        refused=dict(refused),
        scores=_named(counters, "score:"),
        trainer_epoch=counters.get(TRAINER_EPOCH, 0),
        rollout=compared.scores(counters),
    )


def difference(shown: wire.Stats) -> tuple[int, int]:
    """(served − recorded − untracked, recorded − everything a recorded turn can be): (0, 0) when nothing is lost."""
    waiting = shown.waiting.generating + shown.waiting.next_state + shown.waiting.judge
    settled = shown.trained + sum(shown.dropped.values()) + shown.queued + shown.leased + waiting
    return shown.served - shown.recorded - sum(shown.untracked.values()), shown.recorded - settled


def _named(counters: Mapping[str, int], prefix: str) -> dict[str, int]:
    return {name.removeprefix(prefix): value for name, value in counters.items() if name.startswith(prefix) and value}
