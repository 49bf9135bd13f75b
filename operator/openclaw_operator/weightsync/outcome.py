"""What is told of the sync: the record of a hold that ended, and the events an admin reads. Pure."""

from itertools import pairwise

from openclaw_core import names
from openclaw_core.leases import format_time
from openclaw_core.status import LastSync
from openclaw_operator.reasons import Reason
from openclaw_operator.weightsync.fleet import error_of
from openclaw_operator.weightsync.model import Announce, HoldRun


def record(run: HoldRun, now: float, *, ours: bool) -> LastSync:
    """The record of `run`, which ended at `now`. Not `ours`: somebody else wrote the Lease meanwhile."""
    successes = run.successes()
    whole = len(successes) == len(run.participants)
    result = "Abandoned" if not ours else "Failed" if not successes else "Succeeded" if whole else "Partial"
    slowest = max((answer.pause_sec for answer in successes.values()), default=None)
    return LastSync.model_validate(
        {
            "epoch": run.epoch,
            "version": run.version,
            "started_at": format_time(run.issued_wall),
            "pause_ms": round(run.seconds(now) * 1000, 1),
            "engine_ms": round(slowest * 1000, 1) if slowest is not None else None,
            "result": result,
            "missing_acks": len(run.missing),
        }
    )


def announcement(run: HoldRun, result: str, now: float) -> Announce:
    """The event that goes with the record."""
    pause = "no pause of submissions"
    if run.held:
        pause = f"submissions paused {run.seconds(now) * 1000:.0f} ms (epoch {run.epoch}{_parts(run, now)})"
    if run.missing:
        pause += f"; without a word from {', '.join(run.missing)}"
    if run.successes():
        engines = f"{len(run.successes())}/{len(run.participants)} engines"
        return Announce("Normal", Reason.WEIGHT_SYNCED, f"weights {run.version} served by {engines}; {pause}")
    text = f"weights {run.version} reached no engine ({result}): {first_error(run)}; {pause}"
    return Announce("Warning", Reason.WEIGHT_SYNC_FAILED, text)


def mended(error: str) -> Announce:
    """The event of a Lease that somebody garbled."""
    text = f"the Lease of the weight sync held what no operator writes and is written again as last known: {error}"
    return Announce("Warning", Reason.LEASE_MENDED, text)


def no_request_id(asked: str) -> Announce:
    """The event of a one-shot sync asked for under a value that cannot be an id."""
    text = (
        f"annotation {names.ANNOTATION_SYNC} is {asked[:80]!r}, which is no request id: use a new word of up to 63 "
        "letters, digits, '.', '_', ':' and '-' for each sync asked for"
    )
    return Announce("Warning", Reason.SYNC_REQUEST_INVALID, text)


def first_error(run: HoldRun) -> str:
    """Why no engine has the version; empty when one has."""
    if run.successes():
        return ""
    return next((error_of(ended) for ended in run.results.values()), "no engine answered in time")


def _parts(run: HoldRun, now: float) -> str:
    """Where the time of a hold went: writing it, gateways' word, engines, writing its end."""
    if not (run.confirmed and run.updating_since):
        return ""
    moments = (run.issued_at, run.confirmed_at, run.updating_since, run.updated_at, now)
    parts = [f"{(end - begin) * 1000:.0f}" for begin, end in pairwise(moments)]
    return ": hold {}, gateways {}, engines {}, release {}".format(*parts)
