"""The admin's hold of submissions: until an absolute time, with a reason for the clients. Pure.

Told by the Lease watch with what is left of it by the wall clock; counted here on the monotonic one. It ends by itself.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from openclaw_core.leases import SubmissionHold
from openclaw_gateway import errors


@dataclass(frozen=True)
class AdminHold:
    """`ends_at` is on the gateway's monotonic clock, in seconds."""

    hold: SubmissionHold
    ends_at: float

    @classmethod
    def seen(cls, hold: SubmissionHold, wall: datetime, now: float) -> "AdminHold":
        return cls(hold, now + (hold.until - wall).total_seconds())

    def remaining(self, now: float) -> float:
        """Seconds; 0 when it is over."""
        return max(0.0, self.ends_at - now)

    def refusal(self, now: float) -> errors.ApiError:
        until = self.hold.until.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return errors.held(until, self.hold.reason, self.remaining(now))
