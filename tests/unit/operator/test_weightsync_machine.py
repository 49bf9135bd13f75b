"""Single decisions of the weight-sync machine, one situation each."""

from datetime import timedelta
from itertools import pairwise

import pytest

from openclaw_core.leases import Hold, Published, WeightSyncState
from openclaw_core.versions import BASE
from openclaw_core.wire import Synced
from openclaw_operator.reasons import Reason
from openclaw_operator.weightsync import holds
from openclaw_operator.weightsync import model as m
from openclaw_operator.weightsync import target as targets
from openclaw_operator.weightsync.model import Phase
from openclaw_operator.weightsync.view import view
from tests.unit.operator.weightsync_driver import NEW, NEWER, OLD, WALL, Driver, of, only, version

LOST = 7 + m.UNHEARD_EPOCHS
"""Epoch under which a lost Lease is written again that was known at 7."""


def test_answer_that_waited_in_a_sleeping_process_is_not_news() -> None:
    driver = Driver()
    driver.settle()
    driver.later(m.POLL_IDLE_SEC)
    driver.now += m.FRESH_SEC
    driver.agent("e0")
    assert driver.machine.fleet.ready(driver.now) == [], "it was asked before the process slept"
    driver.agent("e0")
    assert driver.machine.fleet.ready(driver.now) == ["e0"]


def test_version_all_engines_have_is_called_served_only_once_they_say_so_again() -> None:
    driver = Driver(engines=1, serving=OLD)
    driver.settle()
    driver.agent("e0", NEW)
    driver.published = version(5)
    assert m.PollAgent("e0") in driver.world()
    assert of(driver.tell(m.Tick()), m.WriteLease) == []
    served = only(driver.agent("e0", NEW), m.WriteLease).state
    assert (served.hold, served.serving_version, served.epoch) == (None, NEW, 8)


def test_engine_with_an_order_open_is_not_counted_as_having_what_it_said_before() -> None:
    driver = Driver(engines=1, serving=OLD)
    driver.settle()
    driver.agent("e0", NEW)
    assert of(driver.tell(m.PrepareEnded("e0", OLD, None)), m.SyncEngine) != []
    driver.publish(5)
    assert of(driver.agent("e0", NEW), m.WriteLease) == [], "it is being told to go back to the older one"
    driver.tell(m.SyncEnded("e0", 7, OLD, None, "no answer"))
    assert of(driver.agent("e0", OLD), m.WriteLease) == []
    assert driver.machine.phase == Phase.PREPARING


def test_new_version_is_prepared_on_every_engine_before_any_hold() -> None:
    driver = Driver()
    driver.settle()
    actions = driver.publish(5)
    assert {action.uid for action in of(actions, m.PrepareEngine)} == {"e0", "e1"}
    assert of(actions, m.WriteLease) == []
    assert of(driver.tell(m.PrepareEnded("e0", NEW, None)), m.WriteLease) == []
    assert driver.machine.phase == Phase.PREPARING


def test_hold_is_one_more_epoch_under_our_name_for_the_pause_timeout() -> None:
    driver = Driver()
    driver.settle()
    write = driver.to_hold()
    assert write.state.hold is not None
    assert (write.state.hold.holder, write.state.hold.epoch, write.state.hold.duration_sec) == ("me", 8, 30)
    assert (write.state.hold.pause_version, write.state.serving_version) == (NEW, OLD)


def test_engines_work_in_parallel_and_end_five_seconds_before_the_hold() -> None:
    driver = Driver()
    driver.settle()
    syncs = driver.to_updating()
    assert [(sync.uid, sync.epoch, sync.version) for sync in syncs] == [("e0", 8, NEW), ("e1", 8, NEW)]
    assert all(sync.deadline_sec == 25.0 for sync in syncs)


def test_missing_ack_is_waited_for_half_a_second_and_no_longer() -> None:
    driver = Driver()
    driver.settle()
    hold = driver.to_hold()
    assert of(driver.lease(hold.state), m.SyncEngine) == []
    driver.now += 0.4
    assert of(driver.tell(m.Tick()), m.SyncEngine) == []
    driver.now += 0.11
    assert len(of(driver.tell(m.Tick()), m.SyncEngine)) == 2
    for uid in ("e0", "e1"):
        actions = driver.synced(uid)
    actions = driver.lease(only(actions, m.WriteLease).state)
    assert driver.machine.last_sync is not None
    assert driver.machine.last_sync.missing_acks == 1
    assert "without a word from g0" in only(actions, m.Announce).message


def test_release_is_one_write_that_clears_the_holder_and_sets_the_served_version() -> None:
    driver = Driver()
    driver.settle()
    driver.to_updating()
    driver.synced("e0")
    actions = driver.synced("e1")
    write = only(actions, m.WriteLease)
    assert (write.state.hold, write.state.serving_version, write.state.epoch) == (None, NEW, 8)
    told = only(actions, m.TellGateways).paused
    assert (told.epoch, told.lease_sec, told.serving_version) == (8, 0.0, NEW)
    announce = only(driver.lease(write.state), m.Announce)
    assert announce.reason == Reason.WEIGHT_SYNCED
    assert driver.machine.last_sync is not None
    assert driver.machine.last_sync.result == "Succeeded"


def test_straggler_is_not_waited_for_once_another_engine_has_the_version() -> None:
    driver = Driver()
    driver.settle()
    driver.to_updating()
    driver.now += 0.05
    assert of(driver.synced("e0"), m.WriteLease) == []
    driver.now += m.STRAGGLER_FLOOR_SEC + 0.01
    write = only(driver.tell(m.Tick()), m.WriteLease)
    assert write.state.serving_version == NEW
    driver.lease(write.state)
    assert driver.machine.last_sync is not None
    assert driver.machine.last_sync.result == "Partial"


def test_hold_that_every_engine_refused_to_try_is_waited_out_and_not_the_versions_fault() -> None:
    """An engine that was killed is starting: before it has tried the version nothing is known of it."""
    driver = Driver(engines=1)
    driver.settle()
    driver.to_updating()
    refused = m.SyncEnded("e0", 8, NEW, None, "the agent answered 409: starting", refused=True)
    state = only(driver.tell(refused), m.WriteLease).state
    assert (state.hold, state.attempt, state.bad_versions) == (None, 0, ())
    assert state.not_before is not None


def test_failed_hold_waits_and_the_second_marks_the_version_bad() -> None:
    driver = Driver(engines=1)
    driver.settle()
    driver.to_updating()
    first = only(driver.synced("e0", ok=False), m.WriteLease).state
    assert (first.serving_version, first.attempt, first.bad_versions) == (OLD, 1, ())
    assert first.not_before is not None
    driver.lease(first)
    assert view(driver.machine).trouble == m.Trouble(Reason.SYNC_FAILED, "the last sync reached no engine: boom")
    assert of(driver.tell(m.TargetWritten(OLD)), m.WriteLease) == []
    driver.now += 6.0
    assert only(driver.agent("e0", epoch=8), m.WriteTarget) == m.WriteTarget(NEW)
    hold = only(driver.tell(m.TargetWritten(NEW)), m.WriteLease)
    assert hold.state.epoch == 10, "the failed hold's end is an epoch of its own"
    driver.lease(hold.state)
    driver.tell(m.GatewayAcked("g0", 10))
    answer = Synced(epoch=10, version=OLD, ok=False, error="boom")
    second = only(driver.tell(m.SyncEnded("e0", 10, NEW, answer)), m.WriteLease).state
    assert (second.bad_versions, second.attempt, second.serving_version) == ((NEW,), 0, OLD)
    driver.lease(second)
    assert view(driver.machine).trouble == m.Trouble(
        Reason.VERSION_BAD, f"version {NEW} failed in 2 holds and is not served: boom"
    )
    assert driver.machine.target() == OLD


def test_engines_that_vanish_in_a_hold_say_nothing_against_the_version() -> None:
    driver = Driver(engines=1)
    driver.settle()
    driver.to_updating()
    driver.engines = []
    write = only(driver.world(), m.WriteLease)
    assert (write.state.hold, write.state.attempt, write.state.bad_versions) == (None, 0, ())


def test_hold_of_an_earlier_process_is_cleared_under_a_higher_epoch_before_any_engine_is_touched() -> None:
    hold = Hold(holder="dead", epoch=7, acquired_at=WALL, duration_sec=30, pause_version=NEW)
    driver = Driver(hold=hold)
    driver.world()
    actions = driver.lease()
    write = only(actions, m.WriteLease)
    assert (write.state.hold, write.state.epoch) == (None, 8)
    assert only(actions, m.TellGateways).paused.epoch == 7
    assert of(actions, m.SyncEngine) == []


def test_engine_that_differs_is_updated_alone_without_a_hold() -> None:
    driver = Driver()
    driver.settle()
    assert only(driver.agent("e1", str(BASE)), m.PrepareEngine) == m.PrepareEngine("e1", OLD)
    actions = driver.tell(m.PrepareEnded("e1", OLD, None))
    assert only(actions, m.SyncEngine) == m.SyncEngine("e1", 7, OLD, 25.0)
    assert of(actions, m.WriteLease) + of(actions, m.TellGateways) == []


def test_engine_that_caught_up_alone_is_an_event_and_one_that_cannot_is_a_trouble() -> None:
    driver = Driver()
    driver.settle()
    driver.agent("e1", str(BASE))
    driver.tell(m.PrepareEnded("e1", OLD, None))
    driver.tell(m.SyncEnded("e1", 7, OLD, None, "refused"))
    text = f"engine e1 does not reach {OLD}: refused"
    assert view(driver.machine).trouble == m.Trouble(Reason.ENGINES_DIFFER, text)
    driver.now += 6.0
    driver.agent("e1", str(BASE))
    driver.tell(m.PrepareEnded("e1", OLD, None))
    answer = Synced(epoch=7, version=OLD, ok=True)
    told = only(driver.tell(m.SyncEnded("e1", 7, OLD, answer)), m.Announce)
    assert (told.kind, told.reason) == ("Normal", Reason.ENGINE_CAUGHT_UP)
    assert "e1" in told.message and OLD in told.message
    assert view(driver.machine).trouble is None


def test_engine_that_cannot_be_updated_alone_is_tried_again_ever_later() -> None:
    driver = Driver()
    driver.settle()
    waits = []
    for _ in range(3):
        driver.agent("e1", str(BASE))
        driver.tell(m.PrepareEnded("e1", OLD, None))
        driver.tell(m.SyncEnded("e1", 7, OLD, None, "refused"))
        began = driver.now
        while not of(driver.agent("e1", str(BASE)), m.PrepareEngine):
            driver.now += 1.0
        waits.append(driver.now - began)
    assert waits == [5.0, 10.0, 20.0]


def test_lost_lease_starts_above_every_epoch_the_engines_have_seen() -> None:
    driver = Driver(serving=None, epoch=0)
    driver.world()
    driver.lease()
    assert of(driver.agent("e0", OLD, epoch=40), m.WriteLease) == [], "another engine may know a higher one"
    write = only(driver.agent("e1", OLD, epoch=41), m.WriteLease)
    assert write.state.epoch == 41 + m.UNHEARD_EPOCHS


def test_silent_agent_holds_up_a_new_leader_for_seconds_only() -> None:
    driver = Driver()
    driver.world()
    driver.lease()
    driver.agent("e0", OLD)
    assert of(driver.publish(5), m.PrepareEngine) == []
    driver.now += m.FIRST_WORD_SEC
    assert of(driver.tell(m.AgentSeen("e1", None)), m.PrepareEngine) == [m.PrepareEngine("e0", NEW)]


def test_hold_of_ours_that_landed_after_we_gave_it_up_is_found_and_cleared() -> None:
    driver = Driver()
    driver.settle()
    world = m.World(tuple(driver.engines), (), Published(version=driver.published), None, 30, lease_version="99")
    assert of(driver.tell(world), m.ReadLease) == [m.ReadLease()]
    assert view(driver.machine).lease == driver.state, "what is shown does not flicker meanwhile"
    late = Hold(holder="me", epoch=8, acquired_at=WALL, duration_sec=30, pause_version=NEW)
    actions = driver.lease(driver.state.model_copy(update={"hold": late, "epoch": 8}))
    write = only(actions, m.WriteLease)
    assert (write.state.hold, write.state.epoch) == (None, 9)


def test_pinned_version_wins_over_the_newest() -> None:
    driver = Driver()
    driver.settle()
    driver.pinned = str(version(3))
    actions = driver.publish(5)
    assert {action.version for action in of(actions, m.PrepareEngine)} == {str(version(3))}


def test_newer_version_published_while_preparing_replaces_the_older() -> None:
    driver = Driver(engines=1)
    driver.settle()
    driver.publish(5)
    driver.tell(m.PrepareEnded("e0", NEW, None))
    driver.publish(6)
    driver.tell(m.TargetWritten(NEW))
    actions = driver.tell(m.Tick())
    assert driver.machine.phase == Phase.PREPARING
    assert of(actions, m.WriteLease) == []


def test_lease_that_a_lost_write_may_still_reach_is_changed_before_anything_else() -> None:
    driver = Driver(engines=1)
    driver.settle()
    driver.to_hold()
    driver.tell(m.LeaseFailed("timeout"))
    driver.now += m.RETRY_READ_SEC
    only(driver.tell(m.Tick()), m.ReadLease)
    driver.writes -= 1
    fence = only(driver.lease(), m.WriteLease)
    assert (fence.state, fence.resource_version) == (driver.state.model_copy(update={"epoch": 8}), str(driver.writes))
    hold = only(driver.lease(fence.state), m.WriteLease).state.hold
    assert hold is not None
    assert hold.epoch == 9


def test_no_engine_at_all_needs_no_hold() -> None:
    driver = Driver(engines=0)
    driver.settle()
    driver.now += m.FIRST_WORD_SEC
    write = only(driver.publish(5), m.WriteLease)
    assert (write.state.serving_version, write.state.hold) == (NEW, None)


def test_operator_that_slept_hears_the_news_before_it_calls_a_version_served_that_no_engine_is_known_to_have() -> None:
    driver = Driver(engines=0)
    driver.settle()
    driver.now += m.FRESH_SEC + 1
    assert of(driver.publish(5), m.WriteLease) == []
    assert driver.machine.next_wake() == driver.now + m.FIRST_WORD_SEC
    driver.now += m.FIRST_WORD_SEC
    driver.engines = [m.EnginePod("e0", "e0", "10.0.0.0", True)]
    assert of(driver.world(), m.WriteLease) == []


def test_silent_engine_that_may_be_serving_keeps_the_version_from_being_declared_served() -> None:
    driver = Driver(engines=1)
    driver.world()
    driver.lease()
    driver.engines = [m.EnginePod("e0", "e0", "10.0.0.0", False)]
    assert of(driver.publish(5), m.WriteLease) == []
    driver.now += m.GIVEN_UP_SEC + 1
    driver.tell(m.Tick())
    driver.now += m.FIRST_WORD_SEC
    assert only(driver.tell(m.Tick()), m.WriteLease).state.serving_version == NEW


def test_target_file_names_the_new_version_before_the_hold_and_the_old_one_after_a_failure() -> None:
    driver = Driver(engines=1)
    driver.settle()
    driver.to_updating()
    failed = only(driver.synced("e0", ok=False), m.WriteLease).state
    assert only(driver.lease(failed), m.WriteTarget) == m.WriteTarget(OLD)


def test_deleted_target_file_is_written_again() -> None:
    driver = Driver()
    driver.settle()
    published = Published(version=driver.published, digest="abcdef01" * 8)
    world = m.World(tuple(driver.engines), (), published, None, 30, target_missing=True)
    assert only(driver.tell(world), m.WriteTarget) == m.WriteTarget(OLD)


def test_failed_preparation_is_a_trouble_only_while_that_version_is_wanted() -> None:
    driver = Driver(engines=1)
    driver.settle()
    driver.publish(5)
    driver.tell(m.PrepareEnded("e0", NEW, "manifest is missing"))
    trouble = view(driver.machine).trouble
    assert trouble == m.Trouble(Reason.PREPARE_FAILED, f"engine e0 cannot prepare {NEW}: manifest is missing")
    driver.publish(6)
    driver.agent("e0", NEWER)
    assert view(driver.machine).trouble is None


def held(seconds: float) -> tuple[tuple[int, float], ...]:
    """The Lease's account of one hold that ended just now."""
    return holds.added((), seconds, WALL + timedelta(seconds=1000.0))


def test_holds_that_take_more_than_a_tenth_of_ten_minutes_degrade_the_sync_and_the_next_one_waits() -> None:
    driver = Driver(held=held(51.0))
    driver.settle()
    driver.publish(5)
    for pod in driver.engines:
        assert not of(driver.tell(m.PrepareEnded(pod.uid, NEW, None)), m.WriteTarget)
    trouble = view(driver.machine).trouble
    assert trouble is not None
    assert trouble.reason == Reason.HOLDS_TOO_LONG
    assert "the next sync waits" in trouble.message
    driver.now += 661.0
    actions = [action for pod in driver.engines for action in driver.agent(pod.uid)]
    assert of(actions, m.WriteTarget) == [m.WriteTarget(NEW)]


def test_hold_is_no_longer_than_what_is_left_of_a_tenth_of_ten_minutes() -> None:
    driver = Driver(held=held(25.0))
    driver.pause_timeout = 50
    driver.settle()
    hold = driver.to_hold().state.hold
    assert hold is not None
    assert hold.duration_sec == 35


def test_failure_of_a_shortened_hold_says_nothing_against_the_version() -> None:
    driver = Driver(held=held(45.0))
    driver.settle()
    driver.lease(driver.to_hold().state)
    driver.tell(m.GatewayAcked("g0", 8))
    driver.synced("e0", ok=False)
    release = only(driver.synced("e1", ok=False), m.WriteLease).state
    assert (release.attempt, release.bad_versions) == (0, ())
    assert release.not_before == WALL + timedelta(seconds=driver.now + holds.SHORT_RETRY_SEC)


def test_hold_of_the_whole_pause_timeout_is_possible_even_where_that_is_more_than_a_tenth() -> None:
    assert holds.length(WeightSyncState(), 300, WALL) == 300


def test_time_held_is_counted_in_the_lease() -> None:
    driver = Driver()
    driver.settle()
    driver.to_updating()
    driver.now += 2.5
    driver.synced("e0")
    release = only(driver.synced("e1"), m.WriteLease).state
    assert holds.used_sec(release.held, WALL + timedelta(seconds=driver.now)) == 2.5


def test_garbled_lease_is_written_again_as_last_known_under_a_higher_epoch() -> None:
    driver = Driver(bad_versions=(NEWER,))
    driver.settle()
    actions = driver.tell(m.LeaseGarbled("leaseTransitions 'x' is no number", "77"))
    write = only(actions, m.WriteLease)
    assert write.resource_version == "77"
    assert (write.state.epoch, write.state.serving_version, write.state.bad_versions) == (LOST, OLD, (NEWER,))
    assert only(actions, m.Announce).reason == Reason.LEASE_MENDED


def test_lease_that_was_deleted_and_made_again_gets_back_what_it_said() -> None:
    driver = Driver(bad_versions=(NEWER,))
    driver.settle()
    write = only(driver.lease(WeightSyncState()), m.WriteLease)
    assert (write.state.epoch, write.state.serving_version, write.state.bad_versions) == (LOST, OLD, (NEWER,))


def test_epoch_is_raised_to_what_gateways_have_heard() -> None:
    driver = Driver()
    driver.settle()
    write = only(driver.tell(m.GatewayAcked("g0", 12)), m.WriteLease)
    assert write.state.epoch == 12 + m.UNHEARD_EPOCHS


def test_pinned_version_that_failed_twice_is_not_tried_again_and_reported() -> None:
    driver = Driver(bad_versions=(NEW,))
    driver.pinned = NEW
    driver.settle()
    assert driver.machine.target() == OLD
    trouble = view(driver.machine).trouble
    assert trouble is not None
    assert trouble.reason == Reason.VERSION_BAD
    assert NEW in trouble.message


def test_sync_asked_for_by_annotation_gives_a_bad_version_another_try() -> None:
    driver = Driver(bad_versions=(NEW, NEWER))
    driver.settle()
    driver.publish(5)
    driver.request = "again-1"
    write = only(driver.world(), m.WriteLease)
    assert (write.state.sync_request, write.state.bad_versions) == ("again-1", (NEWER,))
    assert of(driver.lease(write.state), m.PrepareEngine)
    request = view(driver.machine).request
    assert request is not None
    assert (request.id, request.result) == ("again-1", "Running")


def test_sync_asked_for_is_taken_up_once() -> None:
    driver = Driver(sync_request="again-1")
    driver.request = "again-1"
    driver.settle()
    assert not of(driver.world(), m.WriteLease)
    request = view(driver.machine).request
    assert request is not None
    assert request.result == "Succeeded"


def test_sync_asked_for_under_a_wrong_id_is_reported_once_and_not_taken_up() -> None:
    driver = Driver()
    driver.settle()
    driver.request = "two words"
    actions = driver.world()
    assert only(actions, m.Announce).reason == Reason.SYNC_REQUEST_INVALID
    assert not of(actions, m.WriteLease)
    assert not of(driver.world(), m.Announce)
    request = view(driver.machine).request
    assert request is not None
    assert request.result == "Invalid"


def test_releasable_keeps_the_newest_two_and_everything_in_use() -> None:
    published = Published(version=version(9), digest="abcdef01" * 8)
    assert targets.releasable(published, {str(version(3)), None, "garbled"}) == (1, 2, 4, 5, 6, 7)
    assert targets.releasable(Published(), set()) == ()


def asked_at(driver: Driver, seconds: float) -> list[float]:
    """When the agent of the first engine, which never answers, is asked; seconds from now."""
    began, found = driver.now, []
    while driver.now < began + seconds:
        asked = of(driver.tell(m.Tick()), m.PollAgent)
        found += [driver.now - began for action in asked if action.uid == "e0"]
        for action in asked:
            driver.tell(m.AgentSeen(action.uid, None))
        driver.now = driver.machine.next_wake()
    return found


def test_silent_agent_is_asked_the_more_seldom_the_longer_it_is_silent() -> None:
    driver = Driver(engines=1)
    driver.settle()
    asked = asked_at(driver, 3000)
    gaps = [later - earlier for earlier, later in pairwise(asked)]
    assert min(gaps) <= 1.5
    assert max(gap for at, gap in zip(asked, gaps, strict=False) if at <= m.GIVEN_UP_SEC) <= 6.0
    assert gaps[-1] == pytest.approx(m.POLL_SILENT_MAX_SEC, abs=0.1)
    assert len(asked) < 110


def test_pace_is_the_usual_one_up_to_a_hundred_trainings_and_then_a_power_of_two() -> None:
    assert [m.pace(many) for many in (0, 100, 101, 200, 201, 1000)] == [1, 1, 2, 2, 4, 16]


def test_agent_at_rest_is_asked_at_the_pace_of_the_world_and_counts_as_reachable_meanwhile() -> None:
    driver = Driver(engines=1)
    driver.pace = 16
    driver.settle()
    asked = []
    for _ in range(100):
        driver.now = driver.machine.next_wake()
        assert driver.machine.fleet.ready(driver.now) == ["e0"]
        if of(driver.tell(m.Tick()), m.PollAgent):
            asked.append(driver.now)
            driver.agent("e0")
    assert {round(later - earlier, 6) for earlier, later in pairwise(asked)} == {16 * m.POLL_IDLE_SEC}


@pytest.mark.parametrize("ready", [True, False])
def test_silent_agent_is_asked_at_once_when_its_pod_changes_and_often_from_then_on(ready: bool) -> None:
    driver = Driver(engines=1)
    driver.engines = [m.EnginePod("e0", "e0", "10.0.0.0", not ready)]
    driver.settle()
    asked_at(driver, 1200)
    driver.engines = [m.EnginePod("e0", "e0", "10.0.0.0", ready)]
    assert of(driver.world(), m.PollAgent) == [m.PollAgent("e0")]
    driver.tell(m.AgentSeen("e0", None))
    assert len(asked_at(driver, 10)) >= 9


def test_engine_that_is_not_there_for_long_still_gets_its_target_file_when_the_first_write_failed() -> None:
    driver = Driver(engines=1)
    driver.world()
    assert of(driver.lease(), m.WriteTarget) == [m.WriteTarget(OLD)]
    asked_at(driver, 1200)
    driver.tell(m.TargetWritten(None))
    driver.now = driver.machine.next_wake()
    assert driver.now < 2300
    assert of(driver.tell(m.Tick()), m.WriteTarget) == [m.WriteTarget(OLD)]
