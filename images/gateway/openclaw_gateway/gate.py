"""Pause and hold as the request path meets them: refuse, or wait, and let nothing depart while one is on.

Fed by the Lease watch and by the operator's post, whichever comes first; decides nothing itself (`pause` and
`admin_hold` do). The admin's hold refuses always; for the end of a weight sync requests may wait.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime

from openclaw_core.leases import Canary, SubmissionHold
from openclaw_gateway import errors
from openclaw_gateway.admin_hold import AdminHold
from openclaw_gateway.departures import Departure, Departures
from openclaw_gateway.pause import Pause


class Gate:
    """`holds_requests`: wait for the end of a pause instead of refusing (weightSyncPause false)."""

    def __init__(self, *, holds_requests: bool, now: Callable[[], float]) -> None:
        self.pause = Pause()
        self.departures = Departures()
        self.admin_hold: AdminHold | None = None
        self._holds_requests, self._now = holds_requests, now
        self._on_change: Callable[[], None] = lambda: None
        self._released = asyncio.Event()

    def on_change(self, call: Callable[[], None]) -> None:
        """Call when a pause begins, and when one ends: engines may then have another version."""
        self._on_change = call

    def hold(self, epoch: int, duration_sec: float, age_sec: float = 0.0) -> None:
        if self.pause.hold(epoch, duration_sec, self._now(), age_sec=age_sec):
            self._released.clear()
            self._on_change()

    def release(self, epoch: int, serving_version: str | None, canary: Canary | None = None) -> None:
        before = self.pause.epoch
        ended = self.pause.release(epoch, serving_version, self._now(), canary)
        if ended or self.pause.epoch != before:
            self._on_change()
        if not self.is_on():
            self._released.set()

    def doubt_engines(self) -> None:
        """An engine changed its version without a pause."""
        self._on_change()

    def hold_submissions(self, hold: SubmissionHold | None, wall: datetime) -> None:
        """The admin's hold, or none (any more). `wall` is the time by the clock that `until` means."""
        self.admin_hold = AdminHold.seen(hold, wall, self._now()) if hold is not None else None

    def held_sec(self) -> float:
        """Seconds of the admin's hold left; 0 without one."""
        return self.admin_hold.remaining(self._now()) if self.admin_hold is not None else 0.0

    def is_on(self) -> bool:
        """A weight sync pauses submissions."""
        return self.pause.is_on(self._now())

    async def enter(self, retries: int = 0) -> None:
        """Pass, or raise ApiError 503; or wait for the end of the pause, which its expiry bounds.

        `retries`: how often this request came before, as its client says.
        """
        self._refuse_held()
        while self.is_on():
            if not self._holds_requests:
                raise errors.paused(self.pause.retry_after(self._now(), retries))
            await self._over()
            self._refuse_held()

    async def depart(self) -> Departure:
        """The last check before a request is sent. ApiError 503 when a pause began since `enter`."""
        await self.enter()
        return self.departures.enter()

    def _refuse_held(self) -> None:
        if self.admin_hold is not None and self.held_sec() > 0:
            raise self.admin_hold.refusal(self._now())

    async def _over(self) -> None:
        try:
            async with asyncio.timeout(self.pause.remaining(self._now())):
                await self._released.wait()
        except TimeoutError:
            return
