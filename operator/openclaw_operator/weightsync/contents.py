"""Every content the operator gives Lease `<name>-weight-sync`, as a function of the one before. Pure.

An epoch belongs to one hold, or to one change of the served version without a hold, and is never used again: whoever
hears two things under different epochs knows which is newer.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

from openclaw_core.leases import Canary, Hold, WeightSyncState
from openclaw_operator.weightsync import failures, holds
from openclaw_operator.weightsync.model import FAILED_HOLD_RETRY_SEC, UNHEARD_EPOCHS, HoldRun
from openclaw_operator.weightsync.target import number_of


def begun(lease: WeightSyncState, *, holder: str, target: str, seconds: int, wall: datetime) -> WeightSyncState:
    """A hold for `target`."""
    epoch = lease.epoch + 1
    hold = Hold(holder=holder, epoch=epoch, acquired_at=wall, duration_sec=seconds, pause_version=target)
    return _taken(lease, target, hold=hold)


def claimed(lease: WeightSyncState, *, claimant: str, target: str) -> WeightSyncState:
    """The begin of an exchange for `target` that pauses nobody."""
    return _taken(lease, target, claim=claimant)


def _taken(lease: WeightSyncState, target: str, **by: object) -> WeightSyncState:
    attempt = failures.attempts(lease, target)
    return lease.model_copy(update={"epoch": lease.epoch + 1, "target_version": target, "attempt": attempt} | by)


def released(
    lease: WeightSyncState, run: HoldRun, *, living: Collection[str], releasable: tuple[int, ...], wall: datetime
) -> WeightSyncState:
    """The end of a hold or claim. `living`: engine pods there are now.

    One that brought nothing ends under an epoch of its own: an order of it that still travels must not come after those
    that bring engines back to what is served.
    """
    epoch = run.epoch if run.successes() else run.epoch + 1
    update: dict[str, object] = {"hold": None, "claim": None, "epoch": epoch, "target_version": run.version}
    update["held"] = holds.added(lease.held, run.counted_sec, wall)
    if run.successes():
        update |= {"serving_version": run.version, "attempt": 0, "not_before": None, "releasable": releasable}
        update["canary"] = _still_canary(lease, run.version)
    elif run.shortened:
        update["not_before"] = wall + timedelta(seconds=holds.SHORT_RETRY_SEC)
    elif run.untried():
        update["not_before"] = wall + timedelta(seconds=FAILED_HOLD_RETRY_SEC)
    elif any(uid in living for uid in run.participants):
        update |= failures.after_failed_hold(lease, run.version, wall)
    # Else all of them vanished (suspended, scaled down, lost): that says nothing about the version.
    return lease.model_copy(update=update)


def cleared(lease: WeightSyncState, wall: datetime) -> WeightSyncState:
    """A hold or claim of an earlier process, ended. The higher epoch shuts its syncs out."""
    update: dict[str, object] = {"hold": None, "claim": None, "epoch": lease.epoch + 1}
    if lease.hold is not None:
        update["held"] = holds.added(lease.held, holds.foreign_sec(lease.hold, wall), wall)
    return lease.model_copy(update=update)


def fenced(lease: WeightSyncState) -> WeightSyncState:
    """The same under the next epoch: a write that was given up for lost does not fit on it any more."""
    return lease.model_copy(update={"epoch": lease.epoch + 1})


def kept(lease: WeightSyncState, target: str) -> WeightSyncState:
    """`target` must stay on the volume although it was released: engines will be told to load it."""
    number = number_of(target)
    return lease.model_copy(update={"releasable": tuple(known for known in lease.releasable if known != number)})


def adopted(lease: WeightSyncState, target: str, releasable: tuple[int, ...]) -> WeightSyncState:
    """`target` is served without a hold: no engine has to change for it."""
    at_first = lease.serving_version is None
    return lease.model_copy(
        update={
            "epoch": lease.epoch + (0 if at_first else 1),
            "serving_version": target,
            "target_version": target,
            "attempt": 0,
            "not_before": None,
            "releasable": releasable,
            "canary": _still_canary(lease, target),
        }
    )


def _still_canary(lease: WeightSyncState, serving: str) -> Canary | None:
    """The canary, unless every engine should serve it now."""
    return None if lease.canary is not None and lease.canary.version == serving else lease.canary


def mended(lease: WeightSyncState | None, best: WeightSyncState, highest_epoch: int) -> WeightSyncState | None:
    """A deleted, garbled (None) or replaced Lease as last known, far above every epoch seen. None: nothing to mend."""
    highest = max(highest_epoch, best.epoch)
    if lease is not None and lease.epoch >= highest:
        return None
    known = lease if lease is not None and lease.epoch >= best.epoch else best
    return known.model_copy(update={"hold": None, "claim": None, "epoch": highest + UNHEARD_EPOCHS})


def asked_for(lease: WeightSyncState, request: str, wanted: str | None) -> WeightSyncState:
    """A person asked for a sync: what is wanted is neither bad nor has to wait."""
    bad = tuple(version for version in lease.bad_versions if version != wanted)
    return lease.model_copy(update={"sync_request": request, "bad_versions": bad, "attempt": 0, "not_before": None})
