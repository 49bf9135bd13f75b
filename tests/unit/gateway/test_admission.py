"""How many turns may be on their way to the trainer: exact at the boundary, back as soon as a place is free."""

import pytest

from openclaw_core import wire
from openclaw_gateway.store import judging, samples, turns
from openclaw_gateway.store.databases import Sqlite
from openclaw_gateway.store.turns import Begun, Refused, Unrecorded
from tests.unit.gateway.stored import Stored


def admitted(store, many, **fields):
    """How many of `many` one-shot users get in."""
    return sum(isinstance(store.arrive(f"question {n}", **fields), Begun) for n in range(many))


@pytest.mark.parametrize(("eta", "batch", "expected"), [(0, 4, 4), (2, 4, 12), (0, 1, 1), (1, 16, 32)])
def test_capacity_is_exact_at_its_boundary(stored, eta, batch, expected):
    store = stored(max_head_off_policyness=eta, rollout_batch_size=batch)
    assert admitted(store, 40) == expected
    assert store.stats().capacity == 0
    assert store.arrive("one more") == Refused("staleness_bound", None)


def test_capacity_is_read_from_the_store_after_a_restart(tmp_path):
    file = tmp_path / "experience.db"
    before = Stored(Sqlite(file), max_head_off_policyness=0, rollout_batch_size=4)
    for number in range(3):
        before.scored(f"s{number}")
    before.begin("generates when the gateway dies")
    before.close()
    after = Stored(Sqlite(file), max_head_off_policyness=0, rollout_batch_size=4)
    try:
        assert after.run(turns.lose_everything) == 1
        assert admitted(after, 12) == 1
        assert after.stats().served == 5
    finally:
        after.close()


def test_concurrent_turns_are_bounded(stored):
    store = stored(max_concurrent=3)
    assert admitted(store, 5) == 3
    assert store.arrive("one more") == Refused("max_concurrent", None)


@pytest.mark.parametrize("reason", ["client_gone", "upstream_error", "empty", "no_ids", "modified_logits"])
def test_dropped_turn_gives_its_place_back_at_once(stored, reason):
    store = stored(max_head_off_policyness=0, rollout_batch_size=1)
    for number in range(3):
        turn = store.begin(f"q{number}")
        assert isinstance(store.arrive("other"), Refused)
        assert store.finish(turn, f"q{number}", drop=reason) == reason
    assert store.stats().dropped == {reason: 3}


def test_withdrawn_turn_leaves_no_trace(stored):
    store = stored(max_head_off_policyness=0, rollout_batch_size=1)
    turn = store.begin("q")
    store.run(lambda tx: turns.withdraw(tx, turn.turn_id))
    assert store.stats().served == 0
    store.begin("q")


def test_turn_without_next_state_counts_for_its_grace_only(stored):
    store = stored(max_head_off_policyness=0, rollout_batch_size=4, next_state_grace_sec=60.0)
    for number in range(4):
        store.turn(f"one-shot {number}")
    assert isinstance(store.arrive("next"), Refused)
    store.now += 59
    assert isinstance(store.arrive("next"), Refused)
    store.now += 1.5
    assert store.stats().capacity == 4
    store.begin("next")
    assert store.stats().waiting.next_state == 4


def test_48_one_shot_users_do_not_block_for_ever(stored):
    store = stored(max_head_off_policyness=0, rollout_batch_size=4, next_state_grace_sec=10.0)
    served = 0
    while served < 48:
        for number in range(served, min(served + 4, 48)):
            store.turn(f"one-shot {number}")
            served += 1
        store.now += 10.5
    assert store.stats().served == 48


def test_rollback_by_four_versions_keeps_admitting(stored):
    store = stored(max_head_off_policyness=0, rollout_batch_size=2)
    for number, version in enumerate((5, 6, 7, 8, 4, 4, 5, 6)):
        ids = [store.scored(f"s{number}-{turn}") for turn in range(2)]
        assert isinstance(store.arrive("one more"), Refused)
        store.lease_samples(2)
        assert store.ack(*ids, version=f"{version}-00000000") == ids
    assert (store.stats().trained, store.stats().capacity) == (16, 2)


def test_eta_0_goes_on_after_a_batch_that_lost_a_turn(stored):
    store = stored(max_head_off_policyness=0, rollout_batch_size=4)
    for number in range(5):
        ids = [store.scored(f"s{number}-{turn}") for turn in range(3)]
        lost = store.begin("lost", session=f"lost-{number}")
        store.finish(lost, "lost", drop="client_gone")
        ids.append(store.scored(f"s{number}-3"))
        assert len(store.lease_samples(4) or ()) == 4
        assert store.ack(*ids) == ids
    assert store.stats().trained == 20


def test_turns_held_for_the_sessions_end_do_not_block_their_own_session(stored):
    store = stored(max_head_off_policyness=0, rollout_batch_size=2, fire_on_turn_end=False, next_state_grace_sec=10.0)
    talk = ["hi"]
    for number in range(5):
        store.turn(*talk, session="s", answer=f"a{number}")
        talk += [f"a{number}", f"u{number}"]
        store.now += 11
    assert store.stats().waiting.judge == 4


def test_samples_keep_their_place_until_they_are_acknowledged(stored):
    store = stored(max_head_off_policyness=0, rollout_batch_size=2)
    ids = [store.scored("a"), store.scored("b")]
    assert store.lease_samples(2) is not None
    assert isinstance(store.arrive("next"), Refused)
    assert store.ack(*ids) == ids
    assert store.stats().capacity == 2


def test_beyond_the_bound_turns_are_served_untracked_when_told_so(stored):
    store = stored(max_head_off_policyness=0, rollout_batch_size=1, on_stale="serveUntracked")
    store.begin("q")
    assert store.arrive("other") == Unrecorded("stale", None)
    full = stored(max_size=1, on_stale="serveUntracked")
    full.scored("a")
    assert full.arrive("other") == Unrecorded("queue_full", None)


def test_full_queue_refuses(stored):
    store = stored(max_size=2, drop_policy="reject")
    store.scored("a")
    store.scored("b")
    assert store.arrive("next") == Refused("queue_full", None)


def test_full_queue_drops_its_oldest_unleased_sample_when_told_so(stored):
    store = stored(max_size=2, drop_policy="dropOldest")
    first = store.scored("a")
    store.now += 1
    second = store.scored("b")
    assert [sample.id for sample in store.lease_samples(1) or ()] == [first]
    store.begin("next")
    shown = store.stats()
    assert (shown.dropped, shown.queued, shown.leased) == ({"queue_full": 1}, 0, 1)
    assert store.ack(first, second) == [first]


def test_full_queue_of_leased_samples_refuses_even_with_drop_oldest(stored):
    store = stored(max_size=1, drop_policy="dropOldest")
    store.scored("a")
    store.lease_samples(1)
    assert store.arrive("next") == Refused("queue_full", None)


def test_late_score_never_overfills_the_queue(stored):
    store = stored(max_size=1)
    store.turn("q", session="late")
    store.arrive("q", "ok", "thanks", session="late", untracked="n")
    (late,) = store.lease_turns()
    store.scored("b")
    request = wire.ScoreTurn(id=late.id, lease=late.lease, score=1, votes=[1])
    assert store.run(lambda tx: judging.score(tx, request, store.policy)) == [late.id]
    assert (store.stats().queued, store.stats().dropped) == (1, {"queue_full": 1})


def test_lost_gateway_frees_its_places_at_the_next_start(stored):
    store = stored(max_head_off_policyness=0, rollout_batch_size=2)
    store.begin("a")
    store.begin("b")
    assert store.run(lambda tx: turns.lose_everything(tx)) == 2
    shown = store.stats()
    assert (shown.dropped, shown.capacity) == ({"gateway_lost": 2}, 2)


def test_restarted_gateway_loses_its_own_turns_and_no_others(stored):
    store = stored()
    store.begin("before the restart", gateway="pod_a-00000001")
    store.begin("of another pod", gateway="podxa-00000001")
    assert store.run(lambda tx: turns.lose_everything(tx, "pod_a")) == 1
    assert (store.stats().waiting.generating, store.stats().dropped) == (1, {"gateway_lost": 1})


def test_generating_turn_without_heartbeat_is_lost_and_with_it_is_not(stored):
    store = stored()
    store.begin("mine", gateway="gw")
    store.begin("other's", gateway="dead")
    for _ in range(10):
        store.now += 20
        store.upkeep()
    shown = store.stats()
    assert (shown.waiting.generating, shown.dropped) == (1, {"gateway_lost": 1})


def test_zero_is_a_sample(stored):
    store = stored()
    store.scored("a", score=0)
    (sample,) = store.lease_samples(1) or ()
    assert sample.score == 0
    assert store.stats().scores == {"0": 1}


def test_backlog_of_trainer_drops_is_free_again(stored):
    store = stored(max_head_off_policyness=0, rollout_batch_size=1)
    turn = store.scored("a")
    store.lease_samples(1)
    request = wire.DropSamples(trainer_epoch=1, ids=[turn], reason="stale")
    assert store.run(lambda tx: samples.drop(tx, request)) == [turn]
    assert (store.stats().capacity, store.stats().dropped) == (1, {"stale": 1})
