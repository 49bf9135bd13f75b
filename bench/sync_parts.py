"""What one weight sync consists of, from what a gateway and the engines noted of it, and how many of them are shown."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.stand_ins import Row

COLUMNS = ("prepare", "announce", "ack", "update", "fastest", "release", "window", "overhead")


@dataclass(frozen=True)
class Sync:
    """One sync in seconds: the longest window on any gateway, and what it and the time before it consist of."""

    prepare: float
    """From the publication to the first gateway's first word of the hold."""
    announce: float
    """From there until the last gateway has it."""
    ack: float
    """From there until the first engine is told to update."""
    update: float
    """The slowest engine's own update."""
    fastest: float
    """The fastest engine's."""
    release: float
    """From the last engine's end to the last gateway's word of the release."""
    window: float

    @classmethod
    def of(cls, published: float, windows: Sequence[Row], updates: Sequence[Row]) -> "Sync":
        first, last = min(row.began for row in windows), max(row.began for row in windows)
        return cls(
            prepare=first - published,
            announce=last - first,
            ack=min(row.began for row in updates) - last,
            update=max(row.seconds for row in updates),
            fastest=min(row.seconds for row in updates),
            release=max(row.ended for row in windows) - max(row.ended for row in updates),
            window=max(row.seconds for row in windows),
        )

    @property
    def overhead(self) -> float:
        return self.window - self.update


def medians(syncs: Sequence[Sync]) -> dict[str, float]:
    """In milliseconds, by column."""
    return {name: statistics.median(getattr(sync, name) for sync in syncs) * 1000 for name in COLUMNS}


def head(labels: Sequence[str], beside: str) -> str:
    """Of a Markdown table whose lines begin with `labels` and end with a figure that stands beside the parts."""
    names = [*labels, *COLUMNS, beside]
    return f"| {' | '.join(names)} |\n" + "| --- " * len(names) + "|"


def line(labels: Sequence[object], syncs: Sequence[Sync], beside: Sequence[float]) -> str:
    """Medians in milliseconds. `beside` in seconds, too."""
    figures = [*medians(syncs).values(), statistics.median(beside) * 1000]
    return f"| {' | '.join([*map(str, labels), *(f'{figure:.1f}' for figure in figures)])} |"
