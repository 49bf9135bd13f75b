"""The admin's hold (`policyServing.hold`): whether it counts now, and what gateways are told of it. Pure.

Gateways read it from an annotation of Lease `<name>-weight-sync`, which they watch anyway: setting or lifting a hold
rolls no pod, and a hold ends by itself at its time, whatever became of the operator.
"""

from datetime import datetime, timedelta
from enum import StrEnum

from openclaw_core.config.policy_serving import Hold
from openclaw_core.leases import SubmissionHold

LONGEST = timedelta(hours=24)
_CLOCK_SKEW = timedelta(minutes=5)
"""Allowed between the admin's clock, which names `until`, and ours."""


class HoldState(StrEnum):
    NONE = "none"
    IN_FORCE = "in force"
    OVER = "over"
    TOO_LONG = "too long"
    """It ends too far ahead: a mistake, and not enforced."""


def state(hold: Hold | None, now: datetime) -> HoldState:
    if hold is None:
        return HoldState.NONE
    if now >= hold.until:
        return HoldState.OVER
    return HoldState.TOO_LONG if hold.until - now > LONGEST + _CLOCK_SKEW else HoldState.IN_FORCE


def enforced(hold: Hold | None, now: datetime) -> SubmissionHold | None:
    """What goes to the gateways. One that is over stays there, because a write more would change nothing."""
    if hold is None or state(hold, now) == HoldState.TOO_LONG:
        return None
    return SubmissionHold(until=hold.until, reason=hold.reason)
