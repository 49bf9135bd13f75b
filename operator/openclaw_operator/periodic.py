"""What happens by the clock: Secrets every 15 s, telemetry every 10 s, a full pass over everything every 10 minutes,
and the end of an admin's hold.

Each training has its own phase (jitter), so a thousand of them spread evenly, and what costs requests has a bound for
all of them together. Ticks once a second, where they are many at a quarter of them; every look is bounded by its own
timeouts, and a training is looked at by one task at a time.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from itertools import islice

import aiohttp

from openclaw_core.kube import KubeError
from openclaw_operator import holds, telemetry
from openclaw_operator.holds import HoldState
from openclaw_operator.reconcile import Reconciler, State
from openclaw_operator.secrets import CHECK_EVERY_SEC
from openclaw_operator.telemetry import Sources
from openclaw_operator.training import Key
from openclaw_operator.weightsync.model import pace

log = logging.getLogger(__name__)
RESYNC_EVERY_SEC = 600.0
RESYNCS_PER_SEC = 0.1
"""Of all trainings together: a look at everything is a dozen lists."""
POLLS_PER_SEC = 5.0
"""Of all trainings together: from 50 of them on, each is asked less often than every 10 s."""
SILENT_FACTOR, SILENT_FACTOR_MAX = 4, 16
"""A training of which nobody answers is asked after four times, at last this many times as long, and only one part of
it; all at the usual pace again as soon as that answers, or a pod becomes Ready, stops being so, or has another address.
"""
_TICK_SEC = 1.0
_ROUND_MAX = 4
"""Ticks until each training was looked at once, where they are many (`pace`)."""


class Change(Enum):
    """What a pass is asked for."""

    NUMBERS = auto()
    """Only what is reported: nothing of the training or its children changed."""
    KNOWN = auto()
    """The plan may have changed, the objects did not."""
    UNKNOWN = auto()
    """Anything may have changed: list all."""


@dataclass
class _Due:
    secrets: float
    telemetry: float
    resync: float
    hold: HoldState = HoldState.NONE
    busy: bool = False
    silent: int = 1
    """How many times as long as usual until the next poll."""
    polled: float = float("-inf")
    asked: Sources | None = None
    """Whom the last poll asked."""


class Periodic:
    """Runs over all known trainings. `changed(key, what)` asks for a pass."""

    def __init__(
        self, reconciler: Reconciler, session: aiohttp.ClientSession, changed: Callable[[Key, "Change"], None]
    ) -> None:
        self._reconciler, self._session, self._changed = reconciler, session, changed
        self._due: dict[str, _Due] = {}
        self._ticks = 0
        self._resyncs = 1.0
        """Resyncs that may begin now."""
        self.ticked_at = asyncio.get_running_loop().time()
        """When the loop last came round, on its clock."""

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                now = asyncio.get_running_loop().time()
                self._resyncs = min(1.0, self._resyncs + RESYNCS_PER_SEC * (now - self.ticked_at))
                self.ticked_at = now
                self._tick(tasks, now)
                await asyncio.sleep(_TICK_SEC)

    def _tick(self, tasks: asyncio.TaskGroup, now: float) -> None:
        states = self._reconciler.states
        if len(self._due) > len(states):
            known = {state.uid for state in states.values()}
            self._due = {uid: due for uid, due in self._due.items() if uid in known}
        self._ticks += 1
        each = min(_ROUND_MAX, pace(len(states)))
        for state in islice(states.values(), self._ticks % each, None, each):
            due = self._due.get(state.uid) or self._due.setdefault(state.uid, _first(now))
            self._look_at_hold(state, due)
            if now >= due.resync and self._resyncs >= 1.0:
                self._resyncs -= 1.0
                due.resync = now + _spread(max(RESYNC_EVERY_SEC, len(states) / RESYNCS_PER_SEC))
                self._changed(state.key, Change.UNKNOWN)
            if state.sources is not due.asked and state.sources != due.asked:
                due.telemetry, due.silent = min(due.telemetry, due.polled + self._poll_every()), 1
            if not due.busy and (now >= due.telemetry or (now >= due.secrets and _needs_checks(state))):
                due.busy = True
                tasks.create_task(self._look(state, due, now))

    def _look_at_hold(self, state: State, due: _Due) -> None:
        """A hold begins with an edit and ends with time: the status then says so at once."""
        hold = state.training.spec.policy_serving.hold if state.training is not None else None
        if hold is None and due.hold == HoldState.NONE:
            return
        seen, due.hold = due.hold, holds.state(hold, datetime.now(UTC))
        if seen != due.hold:
            self._changed(state.key, Change.KNOWN)

    async def _look(self, state: State, due: _Due, now: float) -> None:
        try:
            if now >= due.telemetry:
                await self._poll(state, due, now)
            if now >= due.secrets:
                due.secrets = now + _spread(CHECK_EVERY_SEC)
                await self._check(state)
        except (KubeError, aiohttp.ClientError, TimeoutError) as error:
            log.warning("periodic look failed: %s", error, extra={"training": str(state.key)})
        finally:
            due.busy = False

    async def _poll(self, state: State, due: _Due, now: float) -> None:
        due.polled, due.asked, due.telemetry = now, state.sources, now + self._poll_every()
        was_silent = due.silent > 1
        sources = state.sources.one() if was_silent else state.sources
        answered = await telemetry.poll(self._session, sources, state.telemetry)
        heard = answered.answered or not due.asked
        due.silent = 1 if heard else min(SILENT_FACTOR * due.silent, SILENT_FACTOR_MAX)
        due.telemetry = now if heard and was_silent else now + due.silent * self._poll_every()
        if answered != state.telemetry:
            state.telemetry = answered
            self._changed(state.key, Change.NUMBERS)

    def _poll_every(self) -> float:
        """Seconds to a training's next poll: at least 10, and so many that all of them stay within the rate."""
        least = max(telemetry.POLL_EVERY_SEC, len(self._due) / POLLS_PER_SEC)
        return _spread(least, least=least)

    async def _check(self, state: State) -> None:
        if state.training is None:
            return
        if (state.resolved_needs and await self._reconciler.resolve(state, state.training)) or state.claim_problems:
            self._changed(state.key, Change.KNOWN)


def _needs_checks(state: State) -> bool:
    """It uses a Secret or a claim of others. A look at one that does not would be a task for nothing."""
    return bool(state.resolved_needs or state.claim_problems)


def _first(now: float) -> _Due:
    return _Due(
        secrets=now + random.uniform(0, CHECK_EVERY_SEC),
        telemetry=now,
        resync=now + random.uniform(RESYNC_EVERY_SEC / 2, RESYNC_EVERY_SEC),
    )


def _spread(seconds: float, *, least: float = 0.0) -> float:
    return max(least, seconds * random.uniform(0.9, 1.1))
