"""What goes wrong with a canary, what admins are told of it, and what is no fault at all."""

from openclaw_core.wire import Synced
from openclaw_operator.reasons import Reason
from openclaw_operator.weightsync import model as m
from openclaw_operator.weightsync.view import view
from tests.unit.operator.weightsync_driver import BAD, GOOD, LIMITS, NEW, OLD, CanaryDriver, of, only, said


def trouble(driver: CanaryDriver) -> tuple[Reason, str] | None:
    found = view(driver.machine).trouble
    return (found.reason, found.message) if found is not None else None


def test_canary_that_users_dislike_is_rolled_back_and_that_is_no_trouble() -> None:
    driver = CanaryDriver()
    driver.serve_canary()
    driver.lease(only(driver.judged(BAD, GOOD), m.WriteLease).state)
    driver.load("e0", OLD)
    assert (said(driver), trouble(driver)) == ("RolledBack", None)


def test_sync_asked_for_of_a_version_that_was_rolled_back_says_so() -> None:
    driver = CanaryDriver(sync_request="again-1", bad_versions=(NEW,))
    driver.request = "again-1"
    driver.settle()
    driver.publish(5)
    request = view(driver.machine).request
    assert request is not None
    assert (request.result, request.message) == ("Failed", f"version {NEW} was rolled back")


def test_canary_that_no_engine_loads_is_a_trouble_that_says_why() -> None:
    driver = CanaryDriver()
    driver.lease(only(driver.give_up(), m.WriteLease).state)
    driver.agent("e0", epoch=9)
    assert trouble(driver) == (
        Reason.VERSION_BAD,
        f"version {NEW} was canary and is not served: no engine loads it: boom",
    )


def test_canary_that_cannot_be_prepared_is_rolled_back_long_before_its_time() -> None:
    driver = CanaryDriver()
    driver.begin()
    driver.tell(m.PrepareEnded("e0", NEW, "model.safetensors is damaged"))
    driver.now += m.SOLO_RETRY_SEC
    actions = driver.tell(m.Tick())
    assert of(actions, m.PrepareEngine) == [m.PrepareEngine("e0", NEW)]
    actions = driver.tell(m.PrepareEnded("e0", NEW, "model.safetensors is damaged"))
    back = only(actions, m.WriteLease).state
    assert (back.canary, back.bad_versions) == (None, (NEW,))
    assert "no engine loads it: model.safetensors is damaged" in only(actions, m.Announce).message


def test_engines_become_canaries_one_by_one() -> None:
    """They serve until they change, so never all of them at once."""
    driver = CanaryDriver()
    driver.rollout = LIMITS.model_copy(update={"canary_replicas": 2})
    driver.begin()
    first = only(driver.tell(m.PrepareEnded("e0", NEW, None)), m.SyncEngine)
    assert of(driver.tell(m.PrepareEnded("e1", NEW, None)), m.SyncEngine) == []
    done = Synced(epoch=first.epoch, version=NEW, ok=True)
    actions = driver.tell(m.SyncEnded("e0", first.epoch, NEW, done))
    assert [sync.uid for sync in of(actions, m.SyncEngine)] == ["e1"]


def test_gateways_hear_at_once_that_an_engine_changed_alone() -> None:
    """They knew its version from before: what it samples now must not be recorded under that."""
    driver = CanaryDriver()
    driver.begin()
    told = only(driver.load("e0"), m.TellGateways).paused
    assert (told.engines_changed, told.epoch, told.lease_sec) == (True, 8, 0.0)
    assert (told.serving_version, told.canary) == (OLD, driver.state.canary)


def test_version_that_waits_longer_than_a_canary_may_take_is_a_trouble() -> None:
    driver = CanaryDriver()
    driver.engines = driver.engines[:1]
    driver.settle()
    driver.publish(5)
    driver.now += LIMITS.max_duration_sec - 1
    driver.agent("e0")
    assert trouble(driver) is None
    driver.now += 1
    driver.agent("e0")
    found = trouble(driver)
    assert found is not None
    assert found[0] == Reason.CANARY_WAITS
    assert f"version {NEW} has waited for more than 600 s" in found[1]
    driver.pinned = NEW
    driver.world()
    assert trouble(driver) is None
