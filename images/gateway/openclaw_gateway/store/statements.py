"""The statements of the hot path, prepared once.

Parameters are `b_…`, which no column is called; an INSERT's are its columns. What runs once in a while is written where
it is used.
"""

from collections.abc import Sequence

from sqlalchemy import (
    ColumnElement,
    Select,
    and_,
    bindparam,
    false,
    func,
    insert,
    literal_column,
    select,
    text,
    true,
    union_all,
    update,
)

from openclaw_gateway.store.prepared import Prepared, PreparedIn
from openclaw_gateway.store.schema import (
    UNFINISHED,
    State,
    contents,
    has_reason,
    is_in,
    next_states,
    opt_outs,
    sessions,
    turns,
)

MOST_PREFIXES = 64
"""A match further back than 64 answers is not looked for."""


def _in_one_of(*states: State) -> ColumnElement[bool]:
    """Written out: SQLite plans a statement anew at each run whose parameters it compares with the constants of a
    partial index, which costs ten times the run."""
    return turns.c.state.in_([literal_column(f"'{state}'") for state in states])


COUNT = Prepared(
    text(
        "INSERT INTO counters (name, value) VALUES (:name, :value) "
        "ON CONFLICT (name) DO UPDATE SET value = counters.value + excluded.value"
    )
)

# ------------------------------------------------------------ sessions
_SESSION = select(sessions.c.id, sessions.c.name, sessions.c.explicit)
# A client may go on under the name we drew for it: whoever knows it was told it.
SESSION_BY_NAME = Prepared(
    _SESSION.where(sessions.c.owner == bindparam("b_owner"), sessions.c.name == bindparam("b_name"))
)
SESSION_BY_ID = Prepared(_SESSION.where(sessions.c.id == bindparam("b_id")))
TOUCH_SESSION = Prepared(
    update(sessions)
    .where(sessions.c.id == bindparam("b_id"))
    .values(seen_at=bindparam("b_now"), done=bindparam("b_done"))
)
SEE_SESSION = Prepared(update(sessions).where(sessions.c.id == bindparam("b_id")).values(seen_at=bindparam("b_now")))
NEXT_NUMBER = Prepared(
    update(sessions)
    .where(sessions.c.id == bindparam("b_id"))
    .values(turns=sessions.c.turns + 1, seen_at=bindparam("b_now"), done=bindparam("b_done"))
    .returning(sessions.c.turns)
)
INSERT_SESSION = Prepared(
    insert(sessions).returning(sessions.c.id), columns=("owner", "name", "explicit", "turns", "done", "seen_at")
)


# ------------------------------------------------------------ which turn a request continues or repeats
def _continued(chains: Sequence[str]) -> Select[tuple[int, int, str, bytes | None, float]]:
    return select(turns.c.id, turns.c.number, turns.c.state, turns.c.chain, turns.c.grace_until).where(
        turns.c.session_id == bindparam("b_session"),
        turns.c.owner == bindparam("b_owner"),
        turns.c.chain.in_([bindparam(name) for name in chains]),
    )


def _same_conversation(chains: Sequence[str]) -> Select[tuple[int, bytes | None, str]]:
    return (
        select(turns.c.session_id, turns.c.chain, turns.c.hints)
        .join(sessions, sessions.c.id == turns.c.session_id)
        .where(
            turns.c.owner == bindparam("b_owner"),
            turns.c.chain.in_([bindparam(name) for name in chains]),
            sessions.c.explicit == false(),
            sessions.c.done == false(),
        )
    )


CONTINUED = PreparedIn(_continued, MOST_PREFIXES)
SAME_CONVERSATION = PreparedIn(_same_conversation, MOST_PREFIXES)
LATEST_WAITING = Prepared(
    select(turns.c.id, turns.c.tail, turns.c.grace_until)
    .where(
        turns.c.session_id == bindparam("b_session"),
        is_in(State.NEXT_STATE),
        turns.c.number > bindparam("b_after"),
    )
    .order_by(turns.c.number.desc(), turns.c.id.desc())
    .limit(1)
)
_SAME_BODY = (
    select(
        turns.c.id,
        turns.c.session_id,
        turns.c.number,
        turns.c.state,
        turns.c.reason,
        turns.c.lease,
        turns.c.hints,
        turns.c.fire,
        turns.c.grace_until,
    )
    .where(turns.c.owner == bindparam("b_owner"), turns.c.body_hash == bindparam("b_hash"))
    .order_by(turns.c.id.desc())
    .limit(1)
)
_IN_SESSION = _SAME_BODY.where(turns.c.session_id == bindparam("b_session"))
_ANONYMOUS = _SAME_BODY.join(sessions, sessions.c.id == turns.c.session_id).where(sessions.c.explicit == false())
_UNFINISHED = and_(is_in(State.DROPPED), has_reason(*UNFINISHED), turns.c.began_at > bindparam("b_since"))
_SAME_KEY = turns.c.idempotency_key == bindparam("b_key")
UNFINISHED_IN_SESSION, SAME_KEY_IN_SESSION = (
    Prepared(_IN_SESSION.where(_UNFINISHED)),
    Prepared(_IN_SESSION.where(_SAME_KEY)),
)
UNFINISHED_ANONYMOUS, SAME_KEY_ANONYMOUS = (
    Prepared(_ANONYMOUS.where(_UNFINISHED)),
    Prepared(_ANONYMOUS.where(_SAME_KEY)),
)
RETRIED_IN_SESSION = Prepared(_IN_SESSION)
ANY_OPT_OUT = Prepared(select(opt_outs.c.mark).where(opt_outs.c.owner == bindparam("b_owner")).limit(1))

# ------------------------------------------------------------ a turn's life
_MANY = func.count().label("many")
_WAITS = _in_one_of(State.NEXT_STATE, State.JUDGE)
BACKLOG = Prepared(
    union_all(
        select(turns.c.state, _MANY)
        .where(_in_one_of(State.GENERATING, State.QUEUED, State.LEASED))
        .group_by(turns.c.state),
        select(turns.c.state, _MANY).where(_WAITS, turns.c.fire == true()).group_by(turns.c.state),
        select(turns.c.state, _MANY)
        .where(_WAITS, turns.c.fire == false(), turns.c.grace_until > bindparam("b_now"))
        .group_by(turns.c.state),
    )
)
INSERT_TURN = Prepared(
    insert(turns).returning(turns.c.id),
    columns=(
        "session_id",
        "owner",
        "session",
        "number",
        "state",
        "gateway",
        "alive_until",
        "body_hash",
        "idempotency_key",
        "hints",
        "tail",
        "began_at",
        "grace_until",
        "fire",
    ),
)
GENERATING_TURN = Prepared(
    select(turns.c.state, turns.c.session_id, sessions.c.done, sessions.c.seen_at)
    .join(sessions, sessions.c.id == turns.c.session_id, isouter=True)
    .where(turns.c.id == bindparam("b_id"))
)
FINISH_TURN = Prepared(
    update(turns)
    .where(turns.c.id == bindparam("b_id"))
    .values(
        state=bindparam("b_state"),
        reason=bindparam("b_reason"),
        chain=bindparam("b_chain"),
        grace_until=bindparam("b_grace"),
    )
)
INSERT_CONTENTS = Prepared(
    insert(contents),
    columns=("turn_id", "messages", "response", "prompt_ids", "output_ids", "logprobs", "spans", "sampling"),
)
ATTACH = Prepared(
    update(turns)
    .where(turns.c.id == bindparam("b_id"))
    .values(state=State.JUDGE, judge_at=bindparam("b_now"), fire=bindparam("b_fire"))
)
INSERT_NEXT_STATE = Prepared(insert(next_states), columns=("turn_id", "messages", "edited"))
