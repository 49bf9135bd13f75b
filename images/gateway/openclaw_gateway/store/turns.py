"""A turn's life at the gateway: begin, finish, withdraw. One transaction each; the first decides admission."""

from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec
import orjson
from sqlalchemy import ColumnElement, delete, func, select, true, update

from openclaw_core import staleness, wire
from openclaw_gateway.store import opt_outs, sessions
from openclaw_gateway.store import statements as st
from openclaw_gateway.store.schema import LIVE, Drop, State, Untracked, in_order, is_in, turns
from openclaw_gateway.store.sessions import Arrival, Session
from openclaw_gateway.store.transaction import RECORDED, SERVED, AnyRow, Policy, Topic, Transaction, dropped, untracked

HEARTBEAT_SEC = 20.0
"""How often a gateway says which turns it generates."""
_LOST_AFTER_SEC = 90.0  # a generating turn without a heartbeat for this long lost its gateway


_encode = msgspec.json.Encoder().encode


class Refusal(StrEnum):
    """Why a main turn is answered 429."""

    STALENESS_BOUND = "staleness_bound"
    QUEUE_FULL = "queue_full"
    MAX_CONCURRENT = "max_concurrent"


class Begun(msgspec.Struct, frozen=True):
    """Admitted: the turn is recorded from here on."""

    turn_id: int
    session: str
    number: int


@dataclass(frozen=True)
class Unrecorded:
    """Serve it, and count it under this reason when it is served."""

    reason: str
    session: str | None


@dataclass(frozen=True)
class Refused:
    code: Refusal
    session: str | None


Admission = Begun | Unrecorded | Refused


class Span(msgspec.Struct, frozen=True):
    """`wire.Span`, of which a turn has one or two: output tokens [start, end) were sampled by this version."""

    version: str
    start: int
    end: int


class Recording(msgspec.Struct, frozen=True):
    """What the engine sampled: its own ids and logprobs, equally long, and who sampled which part."""

    prompt_ids: Sequence[int]
    output_ids: Sequence[int]
    logprobs: Sequence[float]
    spans: Sequence[Span]
    sampling: wire.Sampling


class Finished(msgspec.Struct, frozen=True):
    """The end of a turn. Without `drop` it has a recording and waits for its next state."""

    messages: Sequence[Any]
    response: dict[str, Any] | None
    chain: bytes | None
    recording: Recording | None
    drop: str | None = None


def arrive(tx: Transaction, arrival: Arrival, policy: Policy) -> Admission:
    """Session match → next state of the turn before → admission → begin turn.

    The next state is attached even if the request is then refused: it has been said.
    """
    matched = sessions.match(tx, arrival)
    session = matched.session
    if opt_outs.applies(tx, arrival):
        if session is not None and arrival.done:
            _end(tx, session)
        return Unrecorded(Untracked.OPT_OUT, None)
    if session is not None:
        sessions.attach_next_state(tx, arrival, session, policy)
        if arrival.done:
            sessions.end(tx, turns.c.session_id == session.id)
    if arrival.untracked is None:
        admission = admit(tx, arrival, policy, matched)
    else:
        admission = Unrecorded(arrival.untracked, session.name if session is not None else arrival.session)
    if session is not None and not isinstance(admission, Begun):
        sessions.touch(tx, session, done=arrival.done)
    return admission


def admit(tx: Transaction, arrival: Arrival, policy: Policy, matched: sessions.Matched | None = None) -> Admission:
    """The second half of `arrive`; called alone by a submission that waited for a place."""
    matched = matched if matched is not None else sessions.match(tx, arrival)
    name = matched.session.name if matched.session is not None else arrival.session
    earlier = matched.retried
    if earlier is not None and not _replaceable(earlier):
        return Unrecorded(Untracked.REPLACED, name)
    refusal = _refusal(tx, policy, earlier)
    if refusal is not None and refusal is not Refusal.MAX_CONCURRENT and policy.on_stale == "serveUntracked":
        return Unrecorded(Untracked.QUEUE_FULL if refusal is Refusal.QUEUE_FULL else Untracked.STALE, name)
    if refusal is not None:
        return Refused(refusal, name)
    if earlier is not None and matched.session is not None:
        _replace(tx, earlier)
        sessions.touch(tx, matched.session, done=arrival.done)
        return _begin(tx, arrival, policy, matched.session, earlier.number)
    return _begin(tx, arrival, policy, *sessions.next_turn(tx, arrival, matched.session))


def finish(tx: Transaction, turn_id: int, finished: Finished, policy: Policy) -> str | None:
    """Commit the answer. The drop reason, or None when the turn lives on. A turn that is gone meanwhile stays so."""
    row = sessions.first(tx.run(st.GENERATING_TURN, {"b_id": turn_id}))
    if row is None or row.state != State.GENERATING:
        return None
    # A session that is forgotten meanwhile has ended too.
    reason = _drop_reason(finished, ended=row.done is None or bool(row.done))
    if reason is None and finished.recording is not None:
        _keep(tx, turn_id, finished, finished.recording)
    else:
        tx.count(dropped(reason or Drop.NO_IDS))
        tx.touched.add(Topic.CAPACITY)
    waits = reason is None and finished.recording is not None
    tx.run(
        st.FINISH_TURN,
        {
            "b_id": turn_id,
            "b_state": State.NEXT_STATE.value if waits else State.DROPPED.value,
            "b_reason": reason,
            "b_chain": finished.chain,
            "b_grace": tx.now + policy.next_state_grace_sec,
        },
    )
    counts = waits and policy.next_state_grace_sec > 0
    tx.moved(out_of=State.GENERATING, into=State.NEXT_STATE if counts else None)
    if row.seen_at is not None:
        sessions.seen(tx, row.session_id, row.seen_at, policy)
    return reason


def withdraw(tx: Transaction, turn_id: int) -> None:
    """Undo `begin` for a turn that was never sent to an engine, or refused by it as the client's mistake."""
    gone = tx.connection.execute(delete(turns).where(turns.c.id == turn_id, turns.c.state == State.GENERATING))
    if gone.rowcount:
        tx.count(SERVED, -1)
        tx.count(RECORDED, -1)
        tx.touched.add(Topic.CAPACITY)


def count_untracked(tx: Transaction, reason: str, owner: str, opted_out: Sequence[bytes]) -> None:
    """A request was served without a record. `opted_out`: chains that what quotes it or its answer has."""
    tx.count(SERVED)
    tx.count(untracked(reason))
    opt_outs.answered(tx, owner, opted_out)


def count_many(tx: Transaction, requests: Mapping[str, int]) -> None:
    """Requests were served without a record while nothing could be stored; how many for each reason."""
    for reason, many in requests.items():
        tx.count(SERVED, many)
        tx.count(untracked(reason), many)


def end_session(tx: Transaction, owner: str, name: str) -> None:
    session = sessions.by_name(tx, owner, name)
    if session is not None:
        _end(tx, session)


def _end(tx: Transaction, session: Session) -> None:
    sessions.touch(tx, session, done=True)
    sessions.end(tx, turns.c.session_id == session.id)


def heartbeat(tx: Transaction, alive: Collection[int]) -> None:
    """Keep these generating turns alive."""
    if alive:
        tx.connection.execute(
            update(turns)
            .where(turns.c.state == State.GENERATING, turns.c.id.in_(alive))
            .values(alive_until=tx.now + _LOST_AFTER_SEC)
        )


def backlog(tx: Transaction, without: AnyRow | None = None) -> staleness.Backlog:
    """Turns on their way to the trainer; those that wait for others count only for their grace. `without`: but one."""
    if tx.backlog is None:
        tx.backlog = {}
        for row in tx.run(st.BACKLOG, {"b_now": tx.now}):
            tx.backlog[row.state] = tx.backlog.get(row.state, 0) + int(row.many)
    many = tx.backlog
    if without is not None and _counts(tx, without):
        many = many | {without.state: many[without.state] - 1}
    return staleness.Backlog(
        generating=many.get(State.GENERATING, 0),
        waiting=many.get(State.NEXT_STATE, 0) + many.get(State.JUDGE, 0),
        queued=many.get(State.QUEUED, 0),
        leased=many.get(State.LEASED, 0),
    )


def _counts(tx: Transaction, turn: AnyRow) -> bool:
    """True when the turn takes a place in the backlog."""
    if turn.state in (State.NEXT_STATE, State.JUDGE):
        return bool(turn.fire) or turn.grace_until > tx.now
    return turn.state in LIVE


def room(backlog_now: staleness.Backlog, policy: Policy) -> int:
    return staleness.capacity(
        backlog_now,
        max_head_off_policyness=policy.max_head_off_policyness,
        rollout_batch_size=policy.rollout_batch_size,
        max_concurrent=policy.max_concurrent,
    )


def drop_oldest_queued(tx: Transaction) -> bool:
    """Make room in a full queue; False when everything queued is leased."""
    query = in_order(select(turns.c.id), "turns_queue").where(is_in(State.QUEUED))
    oldest = query.order_by(turns.c.ready_at, turns.c.id).limit(1)
    row = tx.connection.execute(oldest).first()
    if row is None:
        return False
    drop_turns(tx, [row.id], Drop.QUEUE_FULL)
    return True


def drop_turns(tx: Transaction, ids: Sequence[int], reason: str) -> None:
    """End these live turns under a reason; the caller has checked that it may."""
    if not ids:
        return
    tx.connection.execute(
        update(turns)
        .where(turns.c.id.in_(ids))
        .values(state=State.DROPPED, reason=reason, lease=None, lease_until=None)
    )
    tx.count(dropped(reason), len(ids))
    sessions.forget_contents(tx, ids)
    tx.touched.add(Topic.CAPACITY)


def is_full(tx: Transaction, policy: Policy) -> bool:
    """True when `queue.maxSize` samples wait or are being trained."""
    where: ColumnElement[bool] = turns.c.state.in_((State.QUEUED, State.LEASED))
    many = tx.connection.execute(select(func.count()).select_from(turns).where(where)).scalar_one()
    return int(many) >= policy.max_size


def _refusal(tx: Transaction, policy: Policy, earlier: AnyRow | None) -> Refusal | None:
    now = backlog(tx, earlier)
    if now.queued + now.leased >= policy.max_size:
        if policy.drop_policy != "dropOldest" or not drop_oldest_queued(tx):
            return Refusal.QUEUE_FULL
        now = backlog(tx, earlier)
    if now.generating >= policy.max_concurrent:
        return Refusal.MAX_CONCURRENT
    return Refusal.STALENESS_BOUND if room(now, policy) <= 0 else None


def _replaceable(earlier: AnyRow) -> bool:
    return earlier.lease is None and earlier.state not in (State.LEASED, State.TRAINED)


def _replace(tx: Transaction, earlier: AnyRow) -> None:
    """The earlier attempt is served but no turn any more; a stream of it that still runs finds nothing to finish."""
    tx.connection.execute(delete(turns).where(turns.c.id == earlier.id))
    sessions.forget_contents(tx, [earlier.id])
    if earlier.state == State.DROPPED:
        tx.count(dropped(earlier.reason), -1)
    tx.count(RECORDED, -1)
    tx.count(untracked(Untracked.REPLACED))


def _begin(tx: Transaction, arrival: Arrival, policy: Policy, session: Session, number: int) -> Begun:
    row = {
        "session_id": session.id,
        "owner": arrival.owner,
        "session": session.name,
        "number": number,
        "state": State.GENERATING.value,
        "gateway": arrival.gateway,
        "alive_until": tx.now + _LOST_AFTER_SEC,
        "body_hash": arrival.body_hash,
        "idempotency_key": arrival.idempotency_key,
        "hints": orjson.dumps(arrival.hints).decode() if arrival.hints else "{}",
        "tail": arrival.outline.tail,
        "began_at": tx.now,
        "grace_until": tx.now + policy.next_state_grace_sec,
        "fire": False,
    }
    (inserted,) = tx.run(st.INSERT_TURN, row)
    tx.moved(into=State.GENERATING)
    tx.count(SERVED)
    tx.count(RECORDED)
    return Begun(inserted.id, session.name, number)


def _drop_reason(finished: Finished, *, ended: bool) -> str | None:
    if finished.drop in (Drop.CLIENT_GONE, Drop.UPSTREAM_ERROR):
        return finished.drop
    if ended:
        return Drop.FINAL
    return finished.drop if finished.drop or finished.recording else Drop.NO_IDS


def _keep(tx: Transaction, turn_id: int, finished: Finished, recording: Recording) -> None:
    tx.run(
        st.INSERT_CONTENTS,
        {
            "turn_id": turn_id,
            "messages": orjson.dumps(list(finished.messages)),
            "response": orjson.dumps(finished.response),
            "prompt_ids": array("i", recording.prompt_ids).tobytes(),
            "output_ids": array("i", recording.output_ids).tobytes(),
            "logprobs": array("d", recording.logprobs).tobytes(),
            "spans": _encode(recording.spans),
            "sampling": orjson.dumps(recording.sampling.__dict__),
        },
    )


def lose_silent(tx: Transaction) -> int:
    """Generating turns whose gateway went silent become dropped(gateway_lost)."""
    return _lose(tx, turns.c.alive_until <= tx.now)


def lose_everything(tx: Transaction, pod: str | None = None) -> int:
    """The same for every turn that generates, or that one of `pod`'s incarnations generated: they are dead."""
    return _lose(tx, true() if pod is None else turns.c.gateway.startswith(f"{pod}-", autoescape=True))


def _lose(tx: Transaction, which: ColumnElement[bool]) -> int:
    rows = tx.connection.execute(
        update(turns)
        .where(turns.c.state == State.GENERATING, which)
        .values(state=State.DROPPED, reason=Drop.GATEWAY_LOST)
        .returning(turns.c.id)
    ).all()
    tx.count(dropped(Drop.GATEWAY_LOST), len(rows))
    if rows:
        tx.touched.add(Topic.CAPACITY)
    return len(rows)
