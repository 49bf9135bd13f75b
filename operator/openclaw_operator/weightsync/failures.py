"""Bookkeeping of failed holds, in the Lease so that it outlives this process: attempts, waits, bad versions. Pure.

A failed hold is followed by a wait; the second one for the same version marks the version bad, and it is never tried
again by itself.
"""

from datetime import datetime, timedelta

from openclaw_core.leases import WeightSyncState
from openclaw_operator.weightsync.model import FAILED_HOLD_RETRY_SEC, HOLDS_UNTIL_BAD

_BAD_REMEMBERED = 16


def attempts(lease: WeightSyncState, version: str) -> int:
    """Holds for `version` that failed so far."""
    return lease.attempt if lease.target_version == version else 0


def after_failed_hold(lease: WeightSyncState, version: str, wall: datetime) -> dict[str, object]:
    """Fields of the Lease after one more failed hold for `version`."""
    attempt = attempts(lease, version) + 1
    if attempt >= HOLDS_UNTIL_BAD:
        return {"bad_versions": with_bad(lease.bad_versions, version), "attempt": 0, "not_before": None}
    wait = timedelta(seconds=FAILED_HOLD_RETRY_SEC * 2.0 ** (attempt - 1))
    return {"attempt": attempt, "not_before": wall + wait}


def with_bad(bad: tuple[str, ...], version: str) -> tuple[str, ...]:
    """The newest of the bad versions, `version` being one of them."""
    return (*(old for old in bad if old != version), version)[-_BAD_REMEMBERED:]


def wait_sec(lease: WeightSyncState, version: str, wall: datetime) -> float:
    """Seconds until the next hold for `version` may begin; 0 when nothing stands against it."""
    if lease.not_before is None or lease.target_version != version:
        return 0.0
    return max(0.0, (lease.not_before - wall).total_seconds())
