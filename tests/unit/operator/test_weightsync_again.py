"""A second try at a version is told from the first: it does without the trainer's sender."""

from openclaw_core.versions import BASE
from openclaw_core.wire import Synced, Transfer
from openclaw_operator.weightsync import model as m
from openclaw_operator.weightsync.edge import transfer_for
from tests.unit.operator.weightsync_driver import NEW, OLD, Driver, only


def test_second_hold_for_a_version_is_told_from_the_first() -> None:
    driver = Driver(engines=1)
    driver.settle()
    assert [sync.again for sync in driver.to_updating()] == [False]
    driver.lease(only(driver.synced("e0", ok=False), m.WriteLease).state)
    driver.tell(m.TargetWritten(OLD))
    driver.now += m.FAILED_HOLD_RETRY_SEC + 1
    driver.agent("e0", epoch=8)
    hold = only(driver.tell(m.TargetWritten(NEW)), m.WriteLease)
    driver.lease(hold.state)
    second = only(driver.tell(m.GatewayAcked("g0", hold.state.epoch)), m.SyncEngine)
    assert (second.version, second.again) == (NEW, True)


def test_second_update_of_one_engine_alone_is_told_from_the_first() -> None:
    driver = Driver()
    driver.settle()
    driver.agent("e1", str(BASE))
    assert not only(driver.tell(m.PrepareEnded("e1", OLD, None)), m.SyncEngine).again
    driver.tell(m.SyncEnded("e1", 7, OLD, Synced(epoch=7, version=str(BASE), ok=False, error="boom")))
    driver.now += m.SOLO_RETRY_SEC + 1
    for pod in driver.engines:
        driver.agent(pod.uid, OLD if pod.uid != "e1" else str(BASE))
    assert only(driver.tell(m.PrepareEnded("e1", OLD, None)), m.SyncEngine).again


def test_second_try_is_sent_to_the_volume() -> None:
    first, second = (m.SyncEngine("e0", 8, NEW, 25.0, again) for again in (False, True))
    assert transfer_for(first, "10.0.2.1", 3) == Transfer(url="http://10.0.2.1:8301", engines=3)
    assert transfer_for(second, "10.0.2.1", 3) is None
    assert transfer_for(first, None, 3) is None
