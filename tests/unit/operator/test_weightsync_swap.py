"""Versions that are LoRA adapters: no hold, no pause, whatever happens; old ones go when gateways have moved on."""

import pytest

from openclaw_core.wire import AgentState, Synced
from openclaw_operator.training import parse
from openclaw_operator.weightsync import model as m
from openclaw_operator.weightsync.edge import machine_for
from openclaw_operator.weightsync.machine import Machine
from openclaw_operator.weightsync.model import Phase
from openclaw_operator.weightsync.swap import SwapMachine
from tests.fakes.sync_system import schedules
from tests.unit.operator import trainings
from tests.unit.operator.weightsync_driver import NEW, OLD, Driver, of, only, version


class SwapDriver(Driver):
    """A swap machine; engines say which adapters they hold."""

    def __init__(self, engines: int = 2, **lease: object) -> None:
        super().__init__(engines, **lease)
        self.machine = SwapMachine("me", self.now)
        self.words: list[m.RetainAdapters] = []

    def tell(self, told: m.Told) -> list[m.Action]:
        actions = super().tell(told)
        self.words += of(actions, m.RetainAdapters)
        return actions

    def holding(self, uid: str, loaded: str, *adapters: str) -> list[m.Action]:
        state = AgentState(
            version=loaded,
            target=None,
            ready=True,
            paused=False,
            highest_epoch=7,
            phase="serving",
            adapters=list(adapters),
        )
        return self.tell(m.AgentSeen(uid, state))

    def to_loading(self) -> list[m.SyncEngine]:
        """From a settled state to the loads of NEW on every engine."""
        self.publish(5)
        actions: list[m.Action] = []
        for pod in self.engines:
            actions = self.tell(m.PrepareEnded(pod.uid, NEW, None))
        assert of(actions, m.WriteTarget) == [m.WriteTarget(NEW)]
        return of(self.claimed(NEW), m.SyncEngine)

    def claimed(self, name: str) -> list[m.Action]:
        """target.json is written; the epoch is claimed, and the claim comes back."""
        actions = self.tell(m.TargetWritten(name))
        assert of(actions, m.SyncEngine) == []
        return self.lease(only(actions, m.WriteLease).state)

    def serve(self, number: int) -> str:
        """Publish a version, load it on the only engine, and let gateways hear of it."""
        self.publish(number)
        name = str(version(number))
        self.tell(m.PrepareEnded("e0", name, None))
        load = only(self.claimed(name), m.SyncEngine)
        answer = Synced(epoch=load.epoch, version=name, ok=True, error=None, pause_sec=0.0)
        self.lease(only(self.tell(m.SyncEnded("e0", load.epoch, name, answer)), m.WriteLease).state)
        return name


def test_prepared_engines_load_under_a_claimed_epoch_and_the_lease_is_not_held() -> None:
    driver = SwapDriver()
    driver.settle()
    loads = driver.to_loading()
    assert (driver.state.claim, driver.state.hold, driver.state.epoch) == ("me", None, 8)
    assert (driver.state.serving_version, driver.state.target_version) == (OLD, NEW)
    assert [(load.uid, load.epoch, load.version, load.deadline_sec) for load in loads] == [
        ("e0", 8, NEW, 25.0),
        ("e1", 8, NEW, 25.0),
    ]


def test_gateways_are_told_and_the_lease_written_when_every_engine_has_it() -> None:
    driver = SwapDriver()
    driver.settle()
    driver.to_loading()
    assert of(driver.synced("e0"), m.WriteLease) == []
    actions = driver.synced("e1")
    told, write = only(actions, m.TellGateways), only(actions, m.WriteLease)
    assert (told.paused.epoch, told.paused.lease_sec, told.paused.serving_version) == (8, 0.0, NEW)
    assert (write.state.hold, write.state.epoch, write.state.serving_version) == (None, 8, NEW)
    announced = only(driver.lease(write.state), m.Announce)
    assert announced.message == f"weights {NEW} served by 2/2 engines; no pause of submissions"
    assert driver.machine.last_sync is not None
    assert (driver.machine.last_sync.pause_ms, driver.machine.last_sync.result) == (0.0, "Succeeded")


def test_swap_whose_claim_did_not_come_to_be_touches_no_engine() -> None:
    driver = SwapDriver()
    driver.settle()
    driver.publish(5)
    for pod in driver.engines:
        driver.tell(m.PrepareEnded(pod.uid, NEW, None))
    driver.tell(m.TargetWritten(NEW))
    assert of(driver.tell(m.LeaseFailed("conflict")), m.SyncEngine) == []
    driver.now += m.RETRY_READ_SEC
    only(driver.tell(m.Tick()), m.ReadLease)
    other = driver.state.model_copy(update={"claim": "another", "epoch": 8})
    actions = driver.lease(other)
    assert of(actions, m.SyncEngine) == []
    assert driver.machine.phase == Phase.IDLE


def test_claim_of_an_earlier_process_ends_under_a_higher_epoch_before_any_engine_is_touched() -> None:
    driver = SwapDriver(claim="dead", target_version=NEW)
    driver.world()
    actions = driver.lease()
    write = only(actions, m.WriteLease)
    assert (write.state.claim, write.state.epoch, write.state.serving_version) == (None, 8, OLD)
    assert of(actions, m.SyncEngine) + of(actions, m.TellGateways) == []


def test_release_that_was_lost_is_written_again() -> None:
    driver = SwapDriver(1)
    driver.settle()
    driver.to_loading()
    claimed, release = driver.state, only(driver.synced("e0"), m.WriteLease)
    driver.tell(m.LeaseFailed("timeout"))
    driver.now += m.RETRY_READ_SEC
    only(driver.tell(m.Tick()), m.ReadLease)
    assert only(driver.lease(claimed), m.WriteLease).state == release.state


def test_adapter_that_no_engine_takes_leaves_the_old_one_serving_and_is_tried_again_later() -> None:
    driver = SwapDriver(1)
    driver.settle()
    driver.to_loading()
    write = only(driver.synced("e0", ok=False), m.WriteLease)
    assert (write.state.hold, write.state.serving_version, write.state.attempt) == (None, OLD, 1)
    assert write.state.not_before is not None


def test_old_adapter_is_given_up_once_gateways_had_time_to_hear_of_the_switch() -> None:
    driver = SwapDriver(1)
    driver.settle()
    driver.now += m.SWITCH_GRACE_SEC
    driver.to_loading()
    driver.lease(only(driver.synced("e0"), m.WriteLease).state)
    assert of(driver.holding("e0", NEW, OLD, NEW), m.RetainAdapters) == []
    driver.now += m.SWITCH_GRACE_SEC
    assert of(driver.holding("e0", NEW, OLD, NEW), m.RetainAdapters) == [m.RetainAdapters("e0", (NEW,))]
    assert of(driver.holding("e0", NEW, OLD, NEW), m.RetainAdapters) == [], "asked a moment ago"
    driver.now += m.POLL_IDLE_SEC
    assert len(of(driver.holding("e0", NEW, OLD, NEW), m.RetainAdapters)) == 1, "the word may have been lost"
    driver.now += m.POLL_IDLE_SEC
    assert of(driver.holding("e0", NEW, NEW), m.RetainAdapters) == []


def test_adapters_go_though_versions_come_faster_than_the_grace_after_a_switch() -> None:
    driver = SwapDriver(1)
    driver.settle()
    held, most = [OLD], 0
    for number in range(5, 30):
        driver.now += m.SWITCH_GRACE_SEC / 2
        held.append(driver.serve(number))
        driver.holding("e0", held[-1], *held)
        for word in driver.words:
            assert {str(version(number)), str(version(number - 1))} <= set(word.versions), "left within the grace"
            held = [name for name in held if name in word.versions]
        driver.words.clear()
        most = max(most, len(held))
    assert most <= 5


def test_nothing_goes_in_the_first_grace_of_an_operator_that_knows_no_earlier_switch() -> None:
    driver = SwapDriver(1)
    driver.settle()
    assert of(driver.holding("e0", OLD, "3-abcdef01", OLD), m.RetainAdapters) == []
    driver.now += m.SWITCH_GRACE_SEC
    assert of(driver.holding("e0", OLD, "3-abcdef01", OLD), m.RetainAdapters) == [m.RetainAdapters("e0", (OLD,))]


def test_adapter_that_engines_are_loading_is_not_given_up_by_word_of_the_serving_one() -> None:
    driver = SwapDriver(2)
    driver.settle()
    driver.now += m.SWITCH_GRACE_SEC
    driver.to_loading()
    word = only(driver.holding("e0", OLD, "3-abcdef01", OLD, NEW), m.RetainAdapters)
    assert word.versions == tuple(sorted((OLD, NEW)))


def test_adapter_an_engine_still_holds_is_not_released_to_the_trainer() -> None:
    driver = SwapDriver(1, serving=str(version(4)))
    driver.settle()
    driver.holding("e0", OLD, "3-abcdef01", OLD)
    assert 3 in {int(text.split("-")[0]) for text in driver.machine.fleet.versions()}


def test_training_decides_which_machine_runs() -> None:
    merged = parse(trainings.body())
    assert machine_for(merged) is Machine
    lora = {"policyTraining": {"lora": {"rank": 8, "publish": "adapter"}}}
    assert machine_for(parse(trainings.body(**lora))) is SwapMachine


@pytest.mark.parametrize("block", range(4))
def test_swaps_under_any_schedule_hold_nothing_and_end_at_the_newest_version(block: int) -> None:
    for seed in range(block * 30, block * 30 + 30):
        system = schedules.by_chance(seed).run(SwapMachine)
        assert all(content is None or content.hold is None for _, content in system.server.history)
        assert system.server.state.claim is None
        assert all(gateway.pause.remaining(system.time.now) == 0 for gateway in system.gateways.values())
        assert all(operator.machine.phase == Phase.IDLE for operator in system.leaders())
