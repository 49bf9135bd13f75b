"""The demo's middle: examine, let users talk, watch, examine again. One object that fills in an Outcome."""

import asyncio
import time
from dataclasses import dataclass, field

import aiohttp

from examples.quickstart import live, waiting, windows
from examples.quickstart.accounts import Accounts
from examples.quickstart.bring_up import BringUp
from examples.quickstart.commands import StepError
from examples.quickstart.console import Clock
from examples.quickstart.evaluation import Evaluation, Examiner
from examples.quickstart.forwards import Forward
from examples.quickstart.observation import Observer
from examples.quickstart.pacing import Move, Pace
from examples.quickstart.verdict import RATE_WANTED, Outcome
from openclaw_core import names, wire
from openclaw_environment.journal import Journal

_QUIET_WITHIN_SEC = 240.0
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


class Learning:
    """Runs once. `findings` is complete as far as it got, also after an exception."""

    def __init__(
        self,
        clock: Clock,
        pace: Pace,
        bring_up: BringUp,
        training: str,
        observer: Observer,
        examiner: Examiner,
        journal: Journal,
        http: aiohttp.ClientSession,
    ) -> None:
        self._clock, self._pace, self._bring_up, self._training = clock, pace, bring_up, training
        self._observer, self._examiner, self._journal, self._http = observer, examiner, journal, http
        self._users: Forward | None = None
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

    async def learn(self, users: Forward) -> None:
        """Until the held-out rate is reached with everybody quiet, or time or updates are over."""
        self._users = users
        started = time.monotonic()
        while True:
            move = await self._watch(started)
            if move is Move.EXAMINE and await self._look() < RATE_WANTED:
                continue
            await self.stop_users()
            await self._examine_after()
            after = self.findings.after
            if move is Move.STOP or (after is not None and after.rate >= RATE_WANTED):
                return
            self._clock.say("not there yet: users go on")
            await self._switch("start")

    async def settle_accounts(self) -> None:
        """Both sides of the books, once nobody talks any more."""
        users = self._observer.seen.users
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
        found, seen = self.findings, self._observer.seen
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

    async def stop_users(self) -> None:
        """No new sessions; until the open ones are done."""
        if self._users is None:
            return
        await self._switch("stop")
        await waiting.until(self._clock, "open sessions to end", _QUIET_WITHIN_SEC, self._still_talking)

    async def _watch(self, started: float) -> Move:
        with live.view(self._clock) as view:
            while True:
                seen = self._observer.seen
                view.show(seen)
                last_look = self.findings.looks[-1][0] if self.findings.looks else 0
                elapsed = time.monotonic() - started
                move = self._pace.next_move(seen.rates(), last_look=last_look, elapsed_sec=elapsed)
                if move is not Move.WATCH:
                    return move
                await asyncio.sleep(_LOOK_EVERY_SEC)

    async def _look(self) -> float:
        """A look while users go on talking; it decides whether the real examination is worth stopping them."""
        updates = len(self._observer.seen.rates())
        self._clock.say(f"the reward suggests it: asking the held-out questions after update {updates}")
        rate = (await self._examiner.held_out()).rate
        self.findings.looks.append((updates, rate))
        self._clock.say(f"held-out rate {rate:.0%}")
        return rate

    async def _examine_after(self) -> None:
        found = self.findings
        await self._newest_served()
        found.after = await self._examiner.held_out()
        found.quality_after = await self._examiner.quality()
        found.looks.append((len(self._observer.seen.rates()), found.after.rate))
        self._clock.say(
            f"after: users would like {found.after.rate:.0%} of the held-out answers, "
            f"{found.quality_after:.0%} of the quality questions are answered correctly"
        )

    async def _newest_served(self) -> None:
        """A version published just now should be the one examined; bounded, since a sync may fail."""

        async def missing() -> str | None:
            trainer, serving = self._observer.seen.trainer, self._observer.seen.serving
            if trainer is None or trainer.version == serving or trainer.phase == "waiting":
                return None if trainer is None or trainer.version == serving else f"{trainer.version} is not served yet"
            return f"trainer is {trainer.phase}"

        try:
            await waiting.until(self._clock, "the newest version", 90, missing)
        except StepError as error:
            self.findings.faults.append(str(error))

    async def _still_talking(self) -> str | None:
        report = self._observer.seen.users
        return None if report.stopped and report.in_flight == 0 else f"{report.in_flight} open"

    async def _switch(self, word: str) -> None:
        """POST /stop or /start to the users; a broken forward is tried again."""
        assert self._users is not None
        for attempt in range(10):
            try:
                async with (
                    asyncio.timeout(10),
                    self._http.post(f"{self._users.url(names.PORT_ENVIRONMENT)}/{word}") as response,
                ):
                    response.raise_for_status()
                    self._observer.seen.users = wire.ClientReport.model_validate_json(await response.text())
                    return
            except (aiohttp.ClientError, TimeoutError) as error:
                if attempt == 9:
                    raise StepError(f"users did not take /{word}: {error}") from error
                await asyncio.sleep(1)

    async def _settled_stats(self) -> wire.Stats:
        async def missing() -> str | None:
            generating = self._observer.seen.stats.waiting.generating
            return f"{generating} turns still generating" if generating else None

        await asyncio.sleep(3)  # the poller's next reading is taken after the last answer
        await waiting.until(self._clock, "the last turns", 60, missing)
        return self._observer.seen.stats


def _waiting(stats: wire.Stats) -> int:
    return stats.waiting.generating + stats.waiting.next_state + stats.waiting.judge
