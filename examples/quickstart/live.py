"""The live view: a table that stays in place on a terminal, one line per update elsewhere. Reads an Observation."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.live import Live
from rich.table import Table
from rich.text import Text

from examples.quickstart import plots
from examples.quickstart.console import Clock, console
from examples.quickstart.observation import Observation

_QUIET_LINE_EVERY_SEC = 20.0


class View(Protocol):
    def show(self, seen: Observation) -> None: ...


@contextmanager
def view(clock: Clock) -> Iterator[View]:
    """A table on a terminal; plain lines without one."""
    if not sys.stdout.isatty():
        yield PlainLines(clock)
        return
    with Live(console=console, refresh_per_second=2, transient=True) as live:
        yield _InPlace(live, clock)


class _InPlace:
    def __init__(self, live: Live, clock: Clock) -> None:
        self._live, self._clock = live, clock

    def show(self, seen: Observation) -> None:
        self._live.update(table(seen, self._clock.seconds()))


class PlainLines:
    """A line when an update came in, or now and then."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._updates, self._said_at = clock, -1, -_QUIET_LINE_EVERY_SEC

    def show(self, seen: Observation) -> None:
        updates, now = len(seen.rates()), self._clock.seconds()
        if updates == self._updates and now - self._said_at < _QUIET_LINE_EVERY_SEC:
            return
        self._updates, self._said_at = updates, now
        self._clock.say(line(seen))


def facts(seen: Observation) -> dict[str, str]:
    """What the view shows, by name; `–` where nothing is known yet."""
    rates, updates = seen.rates(), seen.trainer.updates if seen.trainer else []
    last = updates[-1] if updates else None
    windows = seen.windows.closed_milliseconds()
    return {
        "step": str(seen.trainer.step) if seen.trainer else "–",
        "liked (last 3 batches)": f"{plots.smoothed(rates)[-1]:.0%}" if rates else "–",
        "version served": seen.serving,
        "trainer": seen.trainer.phase if seen.trainer else "–",
        "queued / leased": f"{seen.stats.queued} / {seen.stats.leased}",
        "lag of the last batch": f"{last.lag_mean:.1f} (max {last.lag_max})" if last else "–",
        "|Δ logprob| of the batch": f"{last.logprob_abs_diff:.1e}" if last else "–",
        "turns answered": str(seen.users.turns_ok),
        "sync windows": f"{len(windows)}, last {windows[-1]:.0f} ms" if windows else "0",
        "503 / 429": f"{refused(seen, 503)} / {refused(seen, 429)}",
    }


def refused(seen: Observation, status: int) -> int:
    """Refusals the users counted."""
    return sum(count for reason, count in seen.users.refused_total.items() if reason.startswith(f"{status}:"))


def line(seen: Observation) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts(seen).items())


def table(seen: Observation, seconds: float) -> Table:
    grid = Table(title=f"OpenClaw Training quickstart, {seconds:.0f} s", show_header=False, title_justify="left")
    grid.add_column(style="dim")
    grid.add_column(min_width=48)
    for name, value in facts(seen).items():
        grid.add_row(name, value)
    paused = seen.windows.is_open(time.time())
    grid.add_row("submissions", Text("paused for a weight sync", "yellow") if paused else Text("open", "green"))
    if rates := seen.rates():
        grid.add_row("liked per update", plots.as_text(rates, height=4))
    return grid
