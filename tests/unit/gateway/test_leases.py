"""Judge and trainer leases: order, bounds, expiry, epochs, and that late callers change nothing."""

import pytest

from openclaw_core import wire
from openclaw_gateway.store import judging, samples
from openclaw_gateway.store.samples import OldEpochError


def waiting(store, session):
    """A turn with its next state; its id."""
    turn = store.turn("q", session=session)
    store.arrive("q", "ok", "thanks", session=session, untracked="n")
    return turn.turn_id


def score(store, turn, value=1):
    request = wire.ScoreTurn(id=turn.id, lease=turn.lease, score=value, votes=[value])
    return store.run(lambda tx: judging.score(tx, request, store.policy))


def test_judges_get_turns_in_the_order_their_next_state_came(stored):
    store = stored()
    ids = []
    for name in "cab":
        ids.append(waiting(store, name))
        store.now += 1
    assert [turn.id for turn in store.lease_turns(2)] == ids[:2]
    assert [turn.id for turn in store.lease_turns(2)] == ids[2:]


def test_judge_slots_are_shared_by_all_workers(stored):
    store = stored(judge_slots=2)
    for name in "abc":
        waiting(store, name)
    held = store.lease_turns(10)
    assert len(held) == 2
    assert store.lease_turns(10) == []
    score(store, held[0])
    assert len(store.lease_turns(10)) == 1


def test_expired_judge_lease_gives_the_turn_to_another_and_the_late_score_is_void(stored):
    store = stored()
    waiting(store, "a")
    (first,) = store.lease_turns(lease_sec=10)
    store.now += 11
    (second,) = store.lease_turns(lease_sec=10)
    assert second.id == first.id
    assert score(store, first, -1) == []
    assert score(store, second, 1) == [second.id]
    assert score(store, second, 1) == []
    assert store.stats().scores == {"1": 1}


def test_extended_judge_lease_is_kept(stored):
    store = stored()
    waiting(store, "a")
    (turn,) = store.lease_turns(lease_sec=10)
    store.now += 8
    request = wire.ExtendTurns(ids=[turn.id, 99], leases=[turn.lease, "x"], lease_sec=10)
    assert store.run(lambda tx: judging.extend(tx, request)) == [turn.id]
    store.now += 8
    assert store.lease_turns() == []
    assert score(store, turn) == [turn.id]


def test_released_turn_keeps_its_place(stored):
    store = stored()
    first = waiting(store, "a")
    store.now += 1
    waiting(store, "b")
    (turn,) = store.lease_turns(1)
    request = wire.ReleaseTurns(ids=[turn.id], leases=[turn.lease])
    assert store.run(lambda tx: judging.release(tx, request)) == [first]
    assert [leased.id for leased in store.lease_turns(1)] == [first]


def test_unjudged_turn_is_dropped_with_the_judges_reason(stored):
    store = stored()
    waiting(store, "a")
    (turn,) = store.lease_turns()
    request = wire.DropTurn(id=turn.id, lease=turn.lease, reason="unjudged")
    assert store.run(lambda tx: judging.drop(tx, request)) == [turn.id]
    assert store.stats().dropped == {"unjudged": 1}


def queue(store, many):
    """Scored samples, one second apart; their ids in order."""
    ids = []
    for number in range(many):
        ids.append(store.scored(f"s{number}"))
        store.now += 1
    return ids


def test_batch_is_exact_and_the_surplus_stays_queued(stored):
    store = stored()
    ids = queue(store, 5)
    assert [sample.id for sample in store.lease_samples(4)] == ids[:4]
    assert store.lease_samples(4) is None
    assert (store.stats().queued, store.stats().leased) == (1, 4)


def test_smaller_batch_suffices_only_after_the_wait(stored):
    store = stored()
    ids = queue(store, 3)
    wanted = {"min_batch": 2, "batch_wait_sec": 100, "lease_sec": 3600}
    assert store.lease_samples(4, **wanted) is None
    store.now += 96
    assert store.lease_samples(4, **wanted) is None
    store.now += 1
    assert [sample.id for sample in store.lease_samples(4, **wanted)] == ids
    queue(store, 1)
    store.now += 1000
    assert store.lease_samples(4, **wanted) is None


def test_expired_samples_return_to_their_old_place(stored):
    store = stored()
    ids = queue(store, 4)
    store.lease_samples(2, lease_sec=10)
    store.now += 11
    assert [sample.id for sample in store.lease_samples(4)] == ids


def test_ack_is_idempotent_and_counts_once(stored):
    store = stored()
    ids = queue(store, 2)
    store.lease_samples(2)
    assert store.ack(*ids) == ids
    assert store.ack(*ids) == ids
    assert store.stats().trained == 2


def test_late_ack_of_an_expired_lease_still_counts(stored):
    store = stored()
    (turn,) = queue(store, 1)
    store.lease_samples(1, lease_sec=10)
    store.now += 11
    store.upkeep()
    assert store.stats().queued == 1
    assert store.ack(turn) == [turn]
    assert store.lease_samples(1) is None


def test_sample_never_leased_cannot_be_acknowledged(stored):
    store = stored()
    (turn,) = queue(store, 1)
    assert store.ack(turn) == []
    assert store.stats().queued == 1


def test_newer_trainer_takes_over_and_the_older_one_is_refused(stored):
    store = stored()
    ids = queue(store, 2)
    store.lease_samples(2, epoch=1)
    assert [sample.id for sample in store.lease_samples(2, epoch=2)] == ids
    with pytest.raises(OldEpochError):
        store.lease_samples(1, epoch=1)
    with pytest.raises(OldEpochError):
        store.ack(*ids, epoch=1)
    assert store.ack(*ids, epoch=2) == ids


def test_newer_trainer_acknowledges_what_its_checkpoint_consumed(stored):
    store = stored()
    ids = queue(store, 4)
    store.lease_samples(4, epoch=1)
    assert store.ack(*ids[:2], epoch=2) == ids[:2]
    assert (store.stats().trained, store.stats().queued, store.stats().leased) == (2, 2, 0)
    assert [sample.id for sample in store.lease_samples(2, epoch=2)] == ids[2:]


def test_released_samples_return_untrained(stored):
    store = stored()
    ids = queue(store, 2)
    store.lease_samples(2)
    request = wire.ReleaseSamples(trainer_epoch=1, ids=ids)
    assert store.run(lambda tx: samples.release(tx, request)) == ids
    assert store.ack(*ids) == []
    assert [sample.id for sample in store.lease_samples(2)] == ids


def test_extended_samples_stay_leased(stored):
    store = stored()
    ids = queue(store, 1)
    store.lease_samples(1, lease_sec=10)
    store.now += 8
    request = wire.ExtendSamples(trainer_epoch=1, ids=ids, lease_sec=10)
    assert store.run(lambda tx: samples.extend(tx, request)) == ids
    store.now += 8
    assert store.lease_samples(1) is None
