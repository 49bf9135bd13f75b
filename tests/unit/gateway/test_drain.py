"""When a refused client is told to come again: from what came free lately, in order of refusal, within bounds."""

import pytest

from openclaw_gateway.store.drain import LONGEST_SEC, Drain, Occupancy


def drained(*freed, every=10.0, places=12):
    """A drain that saw a full backlog of `places` free these many, one look each, each refilled at once."""
    drain, recorded, now = Drain(), places, 0.0
    drain.observe(now, Occupancy(recorded, places))
    for many in freed:
        now += every
        recorded += many
        drain.observe(now, Occupancy(recorded, places))
    return drain, now


def test_client_is_sent_to_the_next_batch():
    drain, now = drained(4, 4, 4, every=10.0)
    assert drain.refuse(now + 3) == 8  # 33 s, three batches: one in 11 s, the last was 3 s ago


def test_clients_are_spread_over_the_batches_that_will_have_room_for_them():
    drain, now = drained(2, 2, every=10.0)
    assert [drain.refuse(now) for _ in range(6)] == [10, 10, 20, 20, 30, 30]


def test_order_begins_anew_when_places_came_free():
    drain, now = drained(1, 1, every=10.0)
    assert [drain.refuse(now) for _ in range(3)] == [10, 20, 30]
    drain.observe(now + 10, Occupancy(15, 12))
    assert drain.refuse(now + 10) == 10


@pytest.mark.parametrize(("idle_sec", "told"), [(10, 2), (120, LONGEST_SEC)])
def test_nothing_seen_yet_is_soon_and_nothing_for_long_is_late(idle_sec, told):
    drain = Drain()
    drain.observe(0.0, Occupancy(12, 12))
    drain.observe(idle_sec, Occupancy(12, 12))
    assert drain.refuse(idle_sec) == told


def test_grown_backlog_frees_nothing_and_withdrawn_turns_neither():
    drain = Drain()
    drain.observe(0.0, Occupancy(10, 10))
    drain.observe(2.0, Occupancy(14, 14))
    drain.observe(4.0, Occupancy(12, 12))
    assert drain.refuse(4.0) == 2


def test_old_batches_are_forgotten_and_answers_bounded():
    drain, now = drained(1, every=1.0)
    assert drain.refuse(now + 100) == 1
    drain.observe(now + 400, Occupancy(13, 12))
    assert drain.refuse(now + 400) == LONGEST_SEC
