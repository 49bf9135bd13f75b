from datetime import UTC, datetime, timedelta

import pytest

from openclaw_core.leases import (
    Canary,
    Hold,
    LeaseFormatError,
    Published,
    WeightSyncState,
    parse_published,
    parse_weight_sync,
    render_published,
    render_weight_sync,
)
from openclaw_core.versions import WeightVersion

T0 = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
HELD = WeightSyncState(
    hold=Hold(holder="op-1", epoch=4, acquired_at=T0, duration_sec=120, pause_version="5-0a1b2c3d"),
    epoch=4,
    target_version="5-0a1b2c3d",
    serving_version="4-11111111",
    bad_versions=("3-22222222",),
    releasable=(1, 2),
    attempt=1,
    not_before=T0 + timedelta(seconds=30),
)


CANARY = Canary(version="5-0a1b2c3d", epoch=9, share=0.25, since=T0)


@pytest.mark.parametrize(
    "state",
    [
        HELD,
        WeightSyncState(),
        WeightSyncState(epoch=9, serving_version="1-aaaaaaaa"),
        WeightSyncState(epoch=9, canary=CANARY),
        WeightSyncState(epoch=9, claim="op-1", target_version="5-0a1b2c3d", serving_version="4-11111111"),
    ],
)
def test_weight_sync_lease_survives_a_round_trip(state: WeightSyncState) -> None:
    assert parse_weight_sync(render_weight_sync(state)) == state


def test_empty_lease_is_idle() -> None:
    assert parse_weight_sync({"metadata": {"name": "x"}, "spec": {}}) == WeightSyncState()


@pytest.mark.parametrize(
    "change",
    [
        {"acquireTime": "yesterday"},
        {"leaseDurationSeconds": None},
        {"leaseDurationSeconds": 0},
        {"leaseTransitions": "x"},
    ],
)
def test_garbled_hold_is_an_error_not_a_pause(change: dict[str, object]) -> None:
    lease = render_weight_sync(HELD)
    lease["spec"] |= change
    with pytest.raises(LeaseFormatError, match="garbled"):
        parse_weight_sync(lease)


def test_hold_expires_exactly_at_its_duration() -> None:
    assert HELD.hold is not None
    assert not HELD.hold.expired(T0 + timedelta(seconds=119.999))
    assert HELD.hold.expired(T0 + timedelta(seconds=120))


def test_what_is_served_is_as_old_as_the_epoch_before_one_that_is_taken() -> None:
    idle = WeightSyncState(epoch=9, serving_version="4-11111111")
    claimed = WeightSyncState(epoch=10, claim="op-1", serving_version="4-11111111")
    assert (idle.taken_by, idle.served_epoch) == (None, 9)
    assert (claimed.taken_by, claimed.served_epoch) == ("op-1", 9)
    assert (HELD.taken_by, HELD.served_epoch) == ("op-1", 3)


def test_published_lease_survives_a_round_trip() -> None:
    version = WeightVersion(number=3, digest8="abababab")
    patch = render_published(version, "ab" * 32, trainer_epoch=2)
    assert parse_published(patch) == Published(version=version, digest="ab" * 32, trainer_epoch=2)
    assert parse_published({"metadata": {}}) == Published()


def test_garbled_canary_is_an_error_that_the_operator_mends() -> None:
    lease = render_weight_sync(WeightSyncState(epoch=9, canary=CANARY))
    lease["metadata"]["annotations"]["openclawrl.io/canary"] = '{"version": "5-0a1b2c3d"}'
    with pytest.raises(LeaseFormatError, match="garbled"):
        parse_weight_sync(lease)


def test_canary_takes_its_share_of_sessions_and_always_the_same_ones() -> None:
    taken = {session for session in map(str, range(4000)) if CANARY.takes(session)}
    assert 0.22 < len(taken) / 4000 < 0.28
    assert taken == {session for session in map(str, range(4000)) if CANARY.takes(session)}
    following = CANARY.model_copy(update={"version": "6-0a1b2c3d"})
    assert taken != {session for session in map(str, range(4000)) if following.takes(session)}, "others next time"
