"""Which versions stay on the volume: whatever an engine serves, starts with, or will be told to load."""

from openclaw_core.wire import AgentState
from openclaw_operator.weightsync import model as m
from tests.unit.operator.weightsync_driver import OLD, Driver, of, only, version

NINE = str(version(9))
FREE = (1, 2, 3, 4, 5, 6, 7)
STARTS = AgentState(
    version=None, starting=OLD, target=None, ready=False, paused=False, highest_epoch=7, phase="starting"
)


def settled(*released: int) -> Driver:
    """The newest version, 9, has been served by both engines for long; the Lease released these."""
    driver = Driver(serving=NINE, releasable=released)
    driver.published = version(9)
    driver.world()
    driver.lease()
    driver.tell(m.TargetWritten(NINE))
    return driver


def test_version_an_engine_still_starts_with_is_kept_however_long_that_takes() -> None:
    driver = settled()
    driver.tell(m.AgentSeen("e1", STARTS))
    assert only(driver.agent("e0", NINE), m.WriteLease).state.releasable == (1, 2, 3, 5, 6, 7)


def test_version_that_is_needed_again_is_not_released_any_more() -> None:
    driver = settled(*FREE)
    driver.tell(m.AgentSeen("e1", STARTS))
    assert only(driver.agent("e0", NINE), m.WriteLease).state.releasable == (1, 2, 3, 5, 6, 7)


def test_pinned_version_is_taken_back_from_what_may_be_deleted_before_engines_are_asked_for_it() -> None:
    driver = settled(*FREE)
    for pod in driver.engines:
        driver.agent(pod.uid, NINE)
    driver.pinned = str(version(3))
    actions = driver.world()
    assert of(actions, m.PrepareEngine) == []
    write = only(actions, m.WriteLease)
    assert (write.state.releasable, write.state.epoch, write.state.hold) == ((1, 2, 4, 5, 6, 7), 7, None)
    assert {action.version for action in of(driver.lease(write.state), m.PrepareEngine)} == {str(version(3))}
