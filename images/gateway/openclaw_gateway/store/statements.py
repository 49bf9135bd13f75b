"""The statements of the hot path, built once: SQLAlchemy spends more on building one than SQLite on running it.

Parameters are `b_…`, which no column is called. What runs once in a while is written where it is used.
"""

from sqlalchemy import and_, bindparam, func, insert, literal, or_, select, text, update

from openclaw_gateway.store.schema import LIVE, UNFINISHED, State, contents, next_states, opt_outs, sessions, turns

COUNT = text(
    "INSERT INTO counters (name, value) VALUES (:name, :value) "
    "ON CONFLICT (name) DO UPDATE SET value = counters.value + excluded.value"
)

# ------------------------------------------------------------ sessions
_SESSION = select(sessions.c.id, sessions.c.name, sessions.c.explicit)
# A client may go on under the name we drew for it: whoever knows it was told it.
SESSION_BY_NAME = _SESSION.where(sessions.c.owner == bindparam("b_owner"), sessions.c.name == bindparam("b_name"))
SESSION_BY_ID = _SESSION.where(sessions.c.id == bindparam("b_id"))
TOUCH_SESSION = (
    update(sessions)
    .where(sessions.c.id == bindparam("b_id"))
    .values(seen_at=bindparam("b_now"), done=bindparam("b_done"))
)
SEE_SESSION = update(sessions).where(sessions.c.id == bindparam("b_id")).values(seen_at=bindparam("b_now"))
NEXT_NUMBER = (
    update(sessions)
    .where(sessions.c.id == bindparam("b_id"))
    .values(turns=sessions.c.turns + 1, seen_at=bindparam("b_now"), done=bindparam("b_done"))
    .returning(sessions.c.turns)
)
INSERT_SESSION = insert(sessions)

# ------------------------------------------------------------ which turn a request continues or repeats
_CHAINS = turns.c.chain.in_(bindparam("b_chains", expanding=True))
CONTINUED = select(turns.c.id, turns.c.number, turns.c.state, turns.c.chain).where(
    turns.c.session_id == bindparam("b_session"), turns.c.owner == bindparam("b_owner"), _CHAINS
)
SAME_CONVERSATION = (
    select(turns.c.session_id, turns.c.chain, turns.c.hints)
    .join(sessions, sessions.c.id == turns.c.session_id)
    .where(turns.c.owner == bindparam("b_owner"), _CHAINS, sessions.c.explicit.is_(False), sessions.c.done.is_(False))
)
LATEST_WAITING = (
    select(turns.c.id, turns.c.tail)
    .where(
        turns.c.session_id == bindparam("b_session"),
        turns.c.state == State.NEXT_STATE,
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
    )
    .where(turns.c.owner == bindparam("b_owner"), turns.c.body_hash == bindparam("b_hash"))
    .order_by(turns.c.id.desc())
    .limit(1)
)
_UNFINISHED = and_(
    turns.c.state == State.DROPPED, turns.c.reason.in_(UNFINISHED), turns.c.began_at > bindparam("b_since")
)
_SAME_KEY = turns.c.idempotency_key == bindparam("b_key")
EARLIER_IN_SESSION = _SAME_BODY.where(
    turns.c.session_id == bindparam("b_session"),
    or_(_UNFINISHED, _SAME_KEY, literal(True) == bindparam("b_retry")),
)
EARLIER_ANONYMOUS = _SAME_BODY.where(
    turns.c.session_id.in_(
        select(sessions.c.id).where(sessions.c.owner == bindparam("b_owner"), sessions.c.explicit.is_(False))
    ),
    or_(_UNFINISHED, _SAME_KEY),
)
ANY_OPT_OUT = select(opt_outs.c.mark).where(opt_outs.c.owner == bindparam("b_owner")).limit(1)

# ------------------------------------------------------------ a turn's life
BACKLOG = (
    select(turns.c.state, func.count().label("many"))
    .where(
        turns.c.state.in_(LIVE),
        or_(
            turns.c.state.in_((State.GENERATING, State.QUEUED, State.LEASED)),
            turns.c.fire.is_(True),
            turns.c.grace_until > bindparam("b_now"),
        ),
        turns.c.id != bindparam("b_except"),
    )
    .group_by(turns.c.state)
)
INSERT_TURN = insert(turns)
GENERATING_TURN = (
    select(turns.c.state, turns.c.session_id, sessions.c.done)
    .join(sessions, sessions.c.id == turns.c.session_id, isouter=True)
    .where(turns.c.id == bindparam("b_id"))
)
FINISH_TURN = (
    update(turns)
    .where(turns.c.id == bindparam("b_id"))
    .values(
        state=bindparam("b_state"),
        reason=bindparam("b_reason"),
        chain=bindparam("b_chain"),
        grace_until=bindparam("b_grace"),
    )
)
INSERT_CONTENTS = insert(contents)
ATTACH = (
    update(turns)
    .where(turns.c.id == bindparam("b_id"))
    .values(state=State.JUDGE, judge_at=bindparam("b_now"), fire=bindparam("b_fire"))
)
INSERT_NEXT_STATE = insert(next_states)
