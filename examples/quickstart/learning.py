"""The demo's middle: examine, let users talk, watch, examine again. One object that fills in an Outcome."""

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from examples.quickstart import live, waiting, windows
from examples.quickstart.accounts import Accounts
from examples.quickstart.commands import StepError
from examples.quickstart.console import Clock
from examples.quickstart.evaluation import Evaluation
from examples.quickstart.observation import Observation
from examples.quickstart.pacing import Move, Pace
from examples.quickstart.verdict import RATE_WANTED, Outcome
from openclaw_core import wire
from openclaw_environment.journal import Journal

_QUIET_WITHIN_SEC = 240.0
_NEWEST_WITHIN_SEC = 120.0
_LOOK_EVERY_SEC = 1.0


@dataclass
class Findings:
    """What is measured on the way; None where it was not reached."""

    before: Evaluation | None = None
    after: Evaluation | None = None
    quality_before: float | None = None
    quality_after: float | None = None
    looks: list[tuple[int, float]] = field(default_factory=list)
    """(updates so far, held-out rate) of every examination."""
    lost: int | None = None
    faults: list[str] = field(default_factory=list)


class UsersSwitch(Protocol):
    """See `switch.Switch`."""

    async def stop(self) -> wire.ClientReport: ...
    async def start(self) -> wire.ClientReport: ...


class Asker(Protocol):
    """See `evaluation.Examiner`."""

    async def held_out(self) -> Evaluation: ...
    async def quality(self) -> float: ...


class Learning:
    """Runs once. `findings` is complete as far as it got, also after an exception."""

    def __init__(
        self,
        clock: Clock,
        pace: Pace,
        seen: Observation,
        examiner: Asker,
        journal: Journal,
    ) -> None:
        self._clock, self._pace = clock, pace
        self._seen, self._examiner, self._journal = seen, examiner, journal
        self.findings = Findings()

    async def examine_before(self) -> None:
        found = self.findings
        found.before = await self._examiner.held_out()
        found.quality_before = await self._examiner.quality()
        found.looks.append((0, found.before.rate))
        self._clock.say(
            f"before: users would like {found.before.rate:.0%} of {len(found.before.answers)} held-out answers, "
            f"{found.quality_before:.0%} of the quality questions are answered correctly"
        )

    async def learn(self, users: UsersSwitch) -> None:
        """Until the held-out rate is reached with everybody quiet, or time or updates are over."""
        started = asyncio.get_running_loop().time()
        while True:
            move = await self._watch(started)
            # Users wait while their answers are examined: one version answers everything, and twice as fast.
            await self._quieten(users)
            rate = await self._examine()
            if rate >= RATE_WANTED or move is Move.STOP:
                self.findings.quality_after = await self._examiner.quality()
                self._clock.say(f"{self.findings.quality_after:.0%} of the quality questions are answered correctly")
                return
            self._clock.say("not there yet: users go on")
            self._seen.users = await users.start()

    async def settle_accounts(self) -> None:
        """Both sides of the books, once nobody talks any more."""
        users = self._seen.users
        mine = self._journal.report(stopped=True)
        stats = await self._settled_stats()
        books = Accounts(users.turns_ok + mine.turns_ok, users.failed + mine.failed, stats)
        self.findings.lost = books.lost()
        self._clock.say(
            f"accounts: clients read {books.answered} answers ({books.failed} requests broke off), the gateway served "
            f"{stats.served} = {stats.recorded} recorded + {sum(stats.untracked.values())} untracked; recorded = "
            f"{stats.trained} trained + {sum(stats.dropped.values())} dropped + {stats.queued} queued + "
            f"{stats.leased} leased + {_waiting(stats)} waiting"
        )

    def outcome(self, seconds: float) -> Outcome:
        """What is known now, as the verdict takes it."""
        found, seen = self.findings, self._seen
        refusals = [*seen.users.refused, *self._journal.report(stopped=True).refused]
        faults = [*found.faults, *seen.engines.faults()]
        if seen.windows.unseen_epochs:
            faults.append(f"{seen.windows.unseen_epochs} weight syncs were not seen by the Lease watch")
        return Outcome(
            rate_before=found.before.rate if found.before else None,
            rate_after=found.after.rate if found.after else None,
            quality_before=found.quality_before,
            quality_after=found.quality_after,
            versions=len(seen.engines.versions()),
            windows_ms=seen.windows.closed_milliseconds(),
            outside_window_503=len(windows.outside(refusals, seen.windows.windows)),
            lost=found.lost,
            seconds=seconds,
            faults=faults,
        )

    async def _quieten(self, users: UsersSwitch) -> None:
        """No new sessions; until the open ones are done."""
        self._seen.users = await users.stop()
        await waiting.until(self._clock, "open sessions to end", _QUIET_WITHIN_SEC, self._still_talking)

    async def _watch(self, started: float) -> Move:
        with live.view(self._clock) as view:
            while True:
                seen = self._seen
                view.show(seen)
                last_look = self.findings.looks[-1][0] if self.findings.looks else 0
                elapsed = asyncio.get_running_loop().time() - started
                move = self._pace.next_move(seen.rates(), last_look=last_look, elapsed_sec=elapsed)
                if move is not Move.WATCH:
                    return move
                await asyncio.sleep(_LOOK_EVERY_SEC)

    async def _examine(self) -> float:
        """Held-out rate of everything learned so far; the last examination is the one that counts."""
        found, updates = self.findings, len(self._seen.rates())
        self._clock.say(f"asking the held-out questions after update {updates}")
        await self._newest_served()
        found.after = await self._examiner.held_out()
        found.looks.append((len(self._seen.rates()), found.after.rate))
        self._clock.say(f"users would like {found.after.rate:.0%} of the held-out answers")
        return found.after.rate

    async def _newest_served(self) -> None:
        """Until every whole batch is trained and its version served; bounded, since a sync may fail."""

        async def missing() -> str | None:
            trainer, stats = self._seen.trainer, self._seen.stats
            if trainer is None:
                return None
            batch = trainer.updates[-1].samples if trainer.updates else 1
            if trainer.phase != "waiting" or stats.leased or stats.waiting.judge or stats.queued >= batch:
                return f"trainer is {trainer.phase}, {stats.queued + stats.leased + stats.waiting.judge} turns to go"
            if trainer.version != self._seen.serving:
                return f"{trainer.version} is trained, {self._seen.serving} is served"
            return None

        try:
            await waiting.until(self._clock, "the newest version", _NEWEST_WITHIN_SEC, missing)
        except StepError as error:
            self.findings.faults.append(str(error))

    async def _still_talking(self) -> str | None:
        report = self._seen.users
        return None if report.stopped and report.in_flight == 0 else f"{report.in_flight} open"

    async def _settled_stats(self) -> wire.Stats:
        async def missing() -> str | None:
            generating = self._seen.stats.waiting.generating
            return f"{generating} turns still generating" if generating else None

        await asyncio.sleep(3)  # the poller's next reading is taken after the last answer
        await waiting.until(self._clock, "the last turns", 60, missing)
        return self._seen.stats


def _waiting(stats: wire.Stats) -> int:
    return stats.waiting.generating + stats.waiting.next_state + stats.waiting.judge
