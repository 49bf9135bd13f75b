"""Did it learn? The rule, in one pure function, and the words for people. Last: the one JSON line for machines."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

RATE_WANTED = 0.8
RISE_WANTED = 0.3
QUALITY_DROP_ALLOWED = 0.25
VERSIONS_WANTED = 3


@dataclass(frozen=True)
class Outcome:
    """All measured values. Rates and qualities are shares in [0, 1], None when never measured."""

    rate_before: float | None
    rate_after: float | None
    quality_before: float | None
    quality_after: float | None
    versions: int
    windows_ms: Sequence[float]
    outside_window_503: int
    lost: int | None
    """None: the accounts were never settled."""
    seconds: float
    faults: Sequence[str] = ()
    """Reasons not to trust the run: wrong engine, weights that did not change, a step that failed."""

    def shortfalls(self) -> list[str]:
        """Everything that keeps this from being a success, in plain words."""
        return [*self._missed_goals(), *self._broken_promises(), *self.faults]

    def learned(self) -> bool:
        return not self.shortfalls()

    def _missed_goals(self) -> list[str]:
        if self.rate_before is None or self.rate_after is None:
            return ["the held-out questions were not asked before and after"]
        if self.quality_before is None or self.quality_after is None:
            return ["the quality questions were not asked before and after"]
        goals = (
            (self.rate_after >= RATE_WANTED, f"liked {self.rate_after:.0%} of the time, wanted {RATE_WANTED:.0%}"),
            # Rates are shares of 48: without the rounding 0.1 → 0.4 would miss 0.3 by a rounding error.
            (
                round(self.rate_after - self.rate_before, 6) >= RISE_WANTED,
                f"rose by {self.rate_after - self.rate_before:+.0%}, wanted {RISE_WANTED:+.0%}",
            ),
            (
                round(self.quality_before - self.quality_after, 6) <= QUALITY_DROP_ALLOWED,
                f"correct answers fell from {self.quality_before:.0%} to {self.quality_after:.0%}",
            ),
            (self.versions >= VERSIONS_WANTED, f"{self.versions} versions served, wanted {VERSIONS_WANTED}"),
        )
        return [words for met, words in goals if not met]

    def _broken_promises(self) -> list[str]:
        if self.lost is None:
            return ["the accounts were not settled"]
        promises = (
            (self.outside_window_503 == 0, f"{self.outside_window_503} requests got a 503 outside a weight sync"),
            (self.lost == 0, f"{self.lost} turns are missing in the accounts"),
        )
        return [words for kept, words in promises if not kept]

    def json_line(self) -> str:
        return json.dumps(
            {
                "learned": self.learned(),
                "rate_before": _rounded(self.rate_before),
                "rate_after": _rounded(self.rate_after),
                "quality_before": _rounded(self.quality_before),
                "quality_after": _rounded(self.quality_after),
                "versions": self.versions,
                "windows_ms": list(self.windows_ms),
                "outside_window_503": self.outside_window_503,
                "lost": self.lost,
                "seconds": round(self.seconds, 1),
            },
            separators=(",", ":"),
        )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def in_words(outcome: Outcome) -> str:
    """Two to four sentences for people."""
    shortfalls = outcome.shortfalls()
    if not shortfalls:
        return (
            f"It learned. On questions it was never trained on, users liked {outcome.rate_before:.0%} of the answers "
            f"before and {outcome.rate_after:.0%} after {outcome.versions} weight versions; "
            f"correct answers went from {outcome.quality_before:.0%} to {outcome.quality_after:.0%}. "
            f"Nobody was refused outside a weight sync, and no turn was lost."
        )
    return "It did not pass: " + "; ".join(shortfalls) + "."
