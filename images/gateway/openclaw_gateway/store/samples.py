"""The trainer's side: lease scored turns in the order they became ready, and settle them exactly once.

Every call names the trainer's epoch. A newer epoch takes over: what older ones held returns to the queue, at its old
place. An older one is refused: it was replaced and does not know yet. A sample stays leased until it is acknowledged,
so its place in the backlog is taken until a version that learned from it is published.
"""

import secrets
from array import array
from collections.abc import Sequence

import orjson
from sqlalchemy import select, update

from openclaw_core import wire
from openclaw_gateway.store import turns as life
from openclaw_gateway.store.schema import State, contents, in_order, is_in, turns
from openclaw_gateway.store.transaction import TRAINED, TRAINER_EPOCH, AnyRow, Policy, Topic, Transaction, read


class OldEpochError(Exception):
    """The caller's trainer epoch is older than one that was seen."""

    def __init__(self, epoch: int, newest: int) -> None:
        super().__init__(f"trainer epoch {epoch} was replaced by {newest}")
        self.newest = newest


def lease(tx: Transaction, request: wire.LeaseSamples, policy: Policy) -> wire.LeasedSamples | None:
    """Exactly `batch` samples, or those there are (≥ min_batch) once the oldest waited long enough; else None.

    `batch` is cut to `queue.maxSize`, which a larger one could never reach.
    """
    take_over(tx, request.trainer_epoch)
    expire(tx)
    batch = min(request.batch, policy.max_size)
    queue = in_order(select(turns.c.id, turns.c.ready_at), "turns_queue").where(is_in(State.QUEUED))
    rows = tx.connection.execute(queue.order_by(turns.c.ready_at, turns.c.id).limit(batch)).all()
    waited_enough = bool(rows) and tx.now - rows[0].ready_at >= request.batch_wait_sec
    if len(rows) < batch and not (waited_enough and len(rows) >= request.min_batch):
        return None
    ids = [row.id for row in rows]
    token = secrets.token_hex(8)
    tx.connection.execute(
        update(turns)
        .where(turns.c.id.in_(ids))
        .values(
            state=State.LEASED,
            lease=token,
            lease_until=tx.now + request.lease_sec,
            lease_epoch=request.trainer_epoch,
        )
    )
    return wire.LeasedSamples(lease=token, samples=_samples(tx, ids))


def ack(tx: Transaction, request: wire.AckSamples) -> list[int]:
    """These are trained. Again is fine. A newer epoch may acknowledge what its predecessor had leased."""
    _check(tx, request.trainer_epoch)
    rows = _once_leased(tx, request.ids)
    settled = [row.id for row in rows if row.state != State.TRAINED]
    tx.connection.execute(
        update(turns).where(turns.c.id.in_(settled)).values(state=State.TRAINED, lease=None, lease_until=None)
    )
    tx.count(TRAINED, len(settled))
    if settled:
        tx.touched.add(Topic.CAPACITY)
    take_over(tx, request.trainer_epoch)
    return sorted(row.id for row in rows)


def drop(tx: Transaction, request: wire.DropSamples) -> list[int]:
    _check(tx, request.trainer_epoch)
    ids = sorted(row.id for row in _once_leased(tx, request.ids) if row.state != State.TRAINED)
    life.drop_turns(tx, ids, request.reason[:64])
    take_over(tx, request.trainer_epoch)
    return ids


def extend(tx: Transaction, request: wire.ExtendSamples) -> list[int]:
    take_over(tx, request.trainer_epoch)
    held = _held(tx, request.ids, request.trainer_epoch)
    until = tx.now + request.lease_sec
    tx.connection.execute(update(turns).where(turns.c.id.in_(held)).values(lease_until=until))
    return held


def release(tx: Transaction, request: wire.ReleaseSamples) -> list[int]:
    """Back to the queue, untrained, at their old place."""
    take_over(tx, request.trainer_epoch)
    held = _held(tx, request.ids, request.trainer_epoch)
    tx.connection.execute(
        update(turns)
        .where(turns.c.id.in_(held))
        .values(state=State.QUEUED, lease=None, lease_until=None, lease_epoch=None)
    )
    if held:
        tx.touched.add(Topic.QUEUE)
    return held


def take_over(tx: Transaction, epoch: int) -> None:
    """Raises OldEpochError; a newer epoch than seen returns what older ones hold to the queue."""
    newest = _check(tx, epoch)
    if epoch == newest:
        return
    tx.count(TRAINER_EPOCH, epoch - newest)
    tx.flush()  # the next operation of this commit must see it
    freed = tx.connection.execute(
        update(turns)
        .where(turns.c.state == State.LEASED, turns.c.lease_epoch < epoch)
        .values(state=State.QUEUED, lease=None, lease_until=None)
    )
    if freed.rowcount:
        tx.touched.add(Topic.QUEUE)


def expire(tx: Transaction) -> None:
    """Leases that ran out return to the queue at their place. Their trainer may still acknowledge them."""
    freed = tx.connection.execute(
        update(turns)
        .where(turns.c.state == State.LEASED, turns.c.lease_until <= tx.now)
        .values(state=State.QUEUED, lease=None, lease_until=None)
    )
    if freed.rowcount:
        tx.touched.add(Topic.QUEUE)


def _check(tx: Transaction, epoch: int) -> int:
    newest = read(tx.connection).get(TRAINER_EPOCH, 0)
    if epoch < newest:
        raise OldEpochError(epoch, newest)
    return newest


def _once_leased(tx: Transaction, ids: Sequence[int]) -> Sequence[AnyRow]:
    """Samples that a trainer was given and nobody dropped since."""
    return tx.connection.execute(
        select(turns.c.id, turns.c.state).where(
            turns.c.id.in_(ids),
            turns.c.lease_epoch.is_not(None),
            turns.c.state.in_((State.LEASED, State.QUEUED, State.TRAINED)),
        )
    ).all()


def _held(tx: Transaction, ids: Sequence[int], epoch: int) -> list[int]:
    rows = tx.connection.execute(
        select(turns.c.id).where(turns.c.id.in_(ids), turns.c.state == State.LEASED, turns.c.lease_epoch == epoch)
    )
    return sorted(row.id for row in rows)


def _samples(tx: Transaction, ids: Sequence[int]) -> list[wire.Sample]:
    rows = tx.connection.execute(
        select(turns.c.id, turns.c.session, turns.c.number, turns.c.score, contents)
        .join(contents, contents.c.turn_id == turns.c.id)
        .where(turns.c.id.in_(ids))
        .order_by(turns.c.ready_at, turns.c.id)
    )
    return [_sample(row) for row in rows]


def _sample(row: AnyRow) -> wire.Sample:
    return wire.Sample(
        id=row.id,
        session=row.session,
        turn=row.number,
        prompt_ids=array("i", row.prompt_ids).tolist(),
        output_ids=array("i", row.output_ids).tolist(),
        rollout_logprobs=array("d", row.logprobs).tolist(),
        spans=[wire.Span.model_validate(span) for span in orjson.loads(row.spans)],
        sampling=wire.Sampling.model_validate(orjson.loads(row.sampling)),
        score=row.score,
    )
