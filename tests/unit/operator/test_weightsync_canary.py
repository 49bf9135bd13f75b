"""A canary in the weight-sync machine: who gets it, without a pause, and how it ends."""

from datetime import timedelta

import pytest

from openclaw_core.leases import Canary, WeightSyncState
from openclaw_core.versions import BASE
from openclaw_core.wire import RolloutScores, Synced
from openclaw_operator.reasons import Reason
from openclaw_operator.weightsync import model as m
from openclaw_operator.weightsync import target as targets
from openclaw_operator.weightsync.model import Phase
from openclaw_operator.weightsync.swap import SwapMachine
from openclaw_operator.weightsync.view import view
from tests.unit.operator.weightsync_driver import (
    BAD,
    GOOD,
    LIMITS,
    NEW,
    NEWER,
    OLD,
    WALL,
    CanaryDriver,
    Driver,
    of,
    only,
    said,
)


def test_new_version_becomes_canary_under_an_epoch_of_its_own_and_nothing_is_held() -> None:
    driver = CanaryDriver()
    driver.settle()
    actions = driver.publish(5)
    write, told = only(actions, m.WriteLease).state, only(actions, m.TellGateways).paused
    assert (write.hold, write.serving_version, write.epoch) == (None, OLD, 8)
    assert write.canary == Canary(
        version=NEW, epoch=8, share=1 / 3, since=WALL + timedelta(seconds=driver.now), engines=("e0",), promoted=False
    )
    assert (told.epoch, told.lease_sec, told.serving_version, told.canary) == (8, 0.0, OLD, write.canary)
    assert only(actions, m.Announce).reason == Reason.CANARY_BEGAN
    assert driver.machine.phase == Phase.IDLE


def test_only_canary_engines_load_it_and_the_rest_keeps_the_stable_version() -> None:
    driver = CanaryDriver()
    driver.serve_canary()
    assert of(driver.tell(m.Tick()), m.PrepareEngine) == []
    assert driver.machine.target() == OLD
    assert said(driver) == "Serving"
    assert view(driver.machine).trouble is None


def test_other_engine_takes_the_canary_over_when_its_engine_is_gone() -> None:
    driver = CanaryDriver()
    driver.serve_canary()
    del driver.engines[0]
    moved = only(driver.world(), m.WriteLease).state
    assert moved.canary is not None
    assert (moved.epoch, moved.canary.epoch, moved.canary.engines) == (9, 8, ("e1",)), "late word to e0 is out of date"
    assert [action.uid for action in of(driver.lease(moved), m.PrepareEngine)] == ["e1"]


def test_good_canary_is_promoted_and_only_then_are_submissions_held() -> None:
    driver = CanaryDriver()
    driver.serve_canary()
    actions = driver.judged(GOOD, GOOD)
    decided = only(actions, m.WriteLease).state
    assert (decided.hold, decided.epoch, decided.canary and decided.canary.promoted) == (None, 8, True)
    assert only(actions, m.Announce).reason == Reason.CANARY_PROMOTED
    asked = of(driver.lease(decided), m.PrepareEngine)
    assert {action.uid for action in asked} == {"e1", "e2"}, "the canary engine has it already"
    assert said(driver) == "Promoting"
    for uid in ("e1", "e2"):
        actions = driver.tell(m.PrepareEnded(uid, NEW, None))
    held = only(driver.tell(m.TargetWritten(NEW)), m.WriteLease).state
    assert held.hold is not None
    driver.lease(held)
    assert {sync.uid for sync in of(driver.tell(m.GatewayAcked("g0", 9)), m.SyncEngine)} == {"e1", "e2"}
    for uid in ("e1", "e2"):
        actions = driver.tell(m.SyncEnded(uid, 9, NEW, Synced(epoch=9, version=NEW, ok=True)))
    released, told = only(actions, m.WriteLease).state, only(actions, m.TellGateways).paused
    assert (released.hold, released.serving_version, released.canary) == (None, NEW, None)
    assert (told.serving_version, told.canary) == (NEW, None)
    driver.lease(released)
    assert said(driver) == "Promoted"
    assert of(driver.tell(m.Tick()), m.WriteLease) == []


def test_bad_canary_is_rolled_back_without_a_hold_and_never_tried_again_by_itself() -> None:
    driver = CanaryDriver()
    driver.serve_canary()
    actions = driver.judged(BAD, GOOD)
    back, told = only(actions, m.WriteLease).state, only(actions, m.TellGateways).paused
    assert (back.hold, back.serving_version, back.canary, back.bad_versions) == (None, OLD, None, (NEW,))
    assert (told.epoch, told.canary, told.serving_version) == (9, None, OLD)
    assert (only(actions, m.Announce).kind, only(actions, m.Announce).reason) == ("Warning", Reason.CANARY_ROLLED_BACK)
    driver.lease(back)
    driver.load("e0", OLD)
    assert said(driver) == "RolledBack"
    driver.later(10)
    for pod in driver.engines:
        actions = driver.agent(pod.uid, epoch=9)
    assert of(actions, m.WriteLease | m.PrepareEngine) == []
    following = only(driver.publish(6), m.WriteLease).state.canary
    assert following is not None
    assert following.version == NEWER, "the next version gets its own try"


def test_canary_that_drifts_is_rolled_back_though_it_is_liked() -> None:
    driver = CanaryDriver()
    driver.serve_canary()
    back = only(driver.judged(GOOD, GOOD, drifts=((OLD, 9.0), (NEW, 0.06))), m.WriteLease).state
    assert (back.canary, back.bad_versions) == (None, (NEW,))


def test_scores_of_an_earlier_canary_decide_nothing() -> None:
    driver = CanaryDriver()
    driver.serve_canary()
    old = RolloutScores(epoch=7, scores={NEW: BAD, OLD: GOOD})
    assert of(driver.tell(m.Measured(old)), m.WriteLease) == []


def test_undecided_canary_is_rolled_back_when_its_time_is_over() -> None:
    driver = CanaryDriver()
    driver.serve_canary()
    driver.now = 1000.0 + LIMITS.max_duration_sec - 1
    for write in of(driver.tell(m.Tick()), m.WriteLease):
        driver.lease(write.state)
    assert driver.state.canary is not None
    driver.now += 1
    assert only(driver.tell(m.Tick()), m.WriteLease).state.bad_versions == (NEW,)


def test_wall_clock_that_is_set_back_does_not_prolong_a_canary() -> None:
    driver = CanaryDriver()
    driver.serve_canary()
    driver.now += LIMITS.max_duration_sec
    actions = driver.machine.handle(m.Tick(), driver.now, WALL - timedelta(days=1))
    assert only(actions, m.WriteLease).state.canary is None


def test_canary_of_an_earlier_operator_goes_on_from_its_lease() -> None:
    """Its engine has it, its clock runs on: nothing begins anew."""
    since = WALL + timedelta(seconds=500)
    driver = CanaryDriver(canary=Canary(version=NEW, epoch=7, share=1 / 3, since=since, engines=("e1",)))
    driver.published = driver.published.model_copy(update={"number": 5})
    driver.world()
    driver.lease()
    driver.tell(m.TargetWritten(OLD))
    driver.agent("e0")
    driver.agent("e2")
    assert of(driver.agent("e1", NEW), m.PrepareEngine | m.WriteLease) == []
    driver.now = 500.0 + LIMITS.max_duration_sec
    assert only(driver.tell(m.Tick()), m.WriteLease).state.bad_versions == (NEW,)


def test_version_published_meanwhile_waits_and_the_newest_is_next() -> None:
    driver = CanaryDriver()
    driver.serve_canary()
    assert of(driver.publish(6), m.WriteLease) == []
    driver.publish(7)
    back = only(driver.judged(BAD, GOOD), m.WriteLease).state
    assert back.canary is None
    following = only(driver.lease(back), m.WriteLease).state.canary
    assert following is not None
    assert following.version.startswith("7-")


def test_canary_no_engine_loads_is_rolled_back_before_its_time() -> None:
    actions = CanaryDriver().give_up()
    back = only(actions, m.WriteLease).state
    assert (back.canary, back.bad_versions) == (None, (NEW,))
    assert "no engine loads it: boom" in only(actions, m.Announce).message


@pytest.mark.parametrize(("scores", "promoted"), [({}, True), ({"1": 60}, True), ({"-1": 60}, False)])
def test_canary_with_nothing_to_compare_with_is_promoted_at_its_end_unless_disliked(
    scores: dict[str, int], promoted: bool
) -> None:
    driver = CanaryDriver()
    driver.rollout = LIMITS.model_copy(update={"max_duration_sec": 60})
    driver.engines.pop()
    driver.serve_canary()
    driver.judged(scores, {})
    actions: list[m.Action] = []
    while driver.now < 1060:
        assert of(actions, m.WriteLease) == []
        driver.now, actions = driver.now + 5, []
        for uid in ("e0", "e1"):  # asked once more, they answer this
            actions += driver.tell(m.AgentSeen(uid, None))
            actions += driver.agent(uid, NEW if uid == "e0" else str(BASE), epoch=8)
        if of(actions, m.PrepareEngine):
            sync = only(driver.tell(m.PrepareEnded("e1", OLD, None)), m.SyncEngine)
            refused = Synced(epoch=sync.epoch, version=str(BASE), ok=False, error="boom")
            driver.tell(m.SyncEnded("e1", sync.epoch, OLD, refused))
    write = only(actions, m.WriteLease).state
    if promoted:
        assert write.canary is not None and write.canary.promoted
        assert f"no engine loads {OLD}" in only(actions, m.Announce).message
    else:
        assert (write.canary, write.bad_versions) == (None, (NEW,))
    driver.lease(write)
    assert (driver.machine.target() == NEW) is promoted


def test_pinned_version_ends_a_canary_without_a_verdict() -> None:
    driver = CanaryDriver()
    driver.serve_canary()
    driver.pinned = NEW
    actions = driver.world()
    state = only(actions, m.WriteLease).state
    assert (state.canary, state.bad_versions) == (None, ())
    assert only(actions, m.Announce).reason == Reason.CANARY_CANCELLED
    driver.lease(state)
    assert driver.machine.target() == NEW


def test_rollout_taken_out_of_the_spec_lets_the_newest_version_go_everywhere() -> None:
    driver = CanaryDriver()
    driver.serve_canary()
    driver.rollout = None
    driver.lease(only(driver.world(), m.WriteLease).state)
    assert driver.machine.phase == Phase.PREPARING
    assert view(driver.machine).rollout is None


def test_too_few_engines_let_a_version_wait_and_the_status_says_why() -> None:
    driver = CanaryDriver()
    driver.engines = driver.engines[:1]
    driver.settle()
    assert of(driver.publish(5), m.WriteLease) == []
    seen = view(driver.machine).rollout
    assert seen is not None
    assert (seen.state, seen.message) == ("Waiting", "1 engines answer, more than canaryReplicas (1) are needed")


def test_canary_is_kept_on_the_volume() -> None:
    driver = CanaryDriver()
    driver.serve_canary()
    driver.publish(40)
    driver.now += 2 * m.KEEP_RECENT_SEC
    released = only(driver.agent("e0", OLD, epoch=8), m.WriteLease).state.releasable
    assert 5 not in released
    assert {6, 38} <= set(released)


def test_first_version_of_a_training_with_a_rollout_is_a_canary_too() -> None:
    known = WeightSyncState(serving_version="0-00000000")
    world = m.World((), (), m.Published(version=Driver().published), None, 30, rollout=LIMITS)
    assert targets.candidate(known, world) == OLD
    assert targets.choose(known, world.published, None, rollout=True) == "0-00000000"


def test_without_a_rollout_a_version_goes_to_every_engine_as_ever() -> None:
    driver = CanaryDriver()
    driver.rollout = None
    driver.settle()
    assert {action.uid for action in of(driver.publish(5), m.PrepareEngine)} == {"e0", "e1", "e2"}
    assert view(driver.machine).rollout is None


def test_adapter_of_a_canary_is_kept_while_it_serves_and_for_a_grace_after() -> None:
    driver = CanaryDriver(SwapMachine)
    driver.serve_canary()
    driver.now += m.SWITCH_GRACE_SEC
    holding = {"version": NEW, "adapters": [OLD, NEW], "target": None, "ready": True, "paused": False}
    state = m.AgentState(**holding, highest_epoch=8, phase="serving")
    assert of(driver.tell(m.AgentSeen("e0", state)), m.RetainAdapters) == []
    driver.lease(only(driver.judged(BAD, GOOD), m.WriteLease).state)
    assert of(driver.tell(m.AgentSeen("e0", state)), m.RetainAdapters) == []
    driver.now += m.SWITCH_GRACE_SEC
    assert of(driver.tell(m.AgentSeen("e0", state)), m.RetainAdapters) == [m.RetainAdapters("e0", (OLD,))]


def test_failures_to_load_one_canary_do_not_count_against_the_next() -> None:
    driver = CanaryDriver()
    driver.begin()
    driver.load("e0", ok=False)
    driver.later(10)
    for pod in driver.engines:
        driver.agent(pod.uid, epoch=8)
    driver.publish(6)
    back = only(driver.load("e0", ok=False), m.WriteLease).state
    following = only(driver.lease(back), m.WriteLease).state
    assert following.canary is not None
    assert of(driver.lease(following), m.WriteLease) == []
