"""Whether a canary is promoted, rolled back or watched on: from counts of scores, drift and time. Pure.

Scores are -1, 0 or 1. Promotion needs proof that canary > stable - maxScoreDrop, in mean score; a rollback before the
time is over needs proof of the contrary. It is looked at after every few turns, so an interval for one look would be
wrong more and more often; the proof is by betting instead (Waudby-Smith and Ramdas, "Estimating means of bounded random
variables by betting", JRSS-B 2024; Ville's inequality):

    capital(y, θ) = mean over fractions f of Π (1 - f + f · y_i / θ),   y in [0, 2]

is money put on "the mean of y is above θ" by a player who cannot win on average where that is false. The chance that it
ever reaches 1/α is then at most α, however often one looks and whatever the scores' distribution. One player bets that
the canary's mean is above some m, another that the stable one's is below m + maxScoreDrop, starting from one unit each;
proof is a product of at least 1/α for every m that could be the truth. α = 5 %.

Assumed is that turns are judged one by one with the mean of their version, whatever was judged before. Sessions whose
turns are liked or disliked together are less proof than their turns say; a larger minTurns makes up for it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from openclaw_core.config.policy_serving import Rollout

ERROR_RATE = 0.05
"""Of promoting a version whose mean score is lower by more than maxScoreDrop; likewise of the early rollback."""
_FRACTIONS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7)
_CELLS = 100
"""Means between -1 and 1 are tried in so many cells, each at its least capital: coarser ones only prove less."""


@dataclass(frozen=True)
class Scores:
    """Judged turns of one version by score."""

    bad: int = 0
    neutral: int = 0
    good: int = 0

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> "Scores":
        """From the store's words "-1", "0" and "1"."""
        return cls(counts.get("-1", 0), counts.get("0", 0), counts.get("1", 0))

    @property
    def turns(self) -> int:
        return self.bad + self.neutral + self.good

    @property
    def mean(self) -> float | None:
        """-1 to 1; None without a turn."""
        return (self.good - self.bad) / self.turns if self.turns else None

    def mirrored(self) -> "Scores":
        """The same turns with every score negated."""
        return Scores(self.good, self.neutral, self.bad)


class Verdict(StrEnum):
    WAIT = "Wait"
    PROMOTE = "Promote"
    ROLL_BACK = "RollBack"


@dataclass(frozen=True)
class Decision:
    verdict: Verdict
    why: str


def decide(limits: Rollout, canary: Scores, stable: Scores, *, drift: float | None, elapsed_sec: float) -> Decision:
    """What becomes of a canary now. `drift`: of its own samples of lag 0; None: not measured.

    Never `WAIT` once `elapsed_sec` reached maxDurationSec.
    """
    if limits.max_drift is not None and drift is not None and drift > limits.max_drift:
        return Decision(Verdict.ROLL_BACK, f"its samples drift by {drift:.3g} (maxDrift {limits.max_drift:g})")
    words, drop = compared(canary, stable), limits.max_score_drop
    if min(canary.turns, stable.turns) >= limits.min_turns:
        if exceeds(canary, stable, -drop):
            return Decision(Verdict.PROMOTE, f"{words}: not lower by {drop:g}")
        if exceeds(stable, canary, drop):
            return Decision(Verdict.ROLL_BACK, f"{words}: lower by more than {drop:g}")
    if elapsed_sec >= limits.max_duration_sec:
        text = f"{words}: not shown to be good enough within {limits.max_duration_sec} s"
        return Decision(Verdict.ROLL_BACK, text)
    return Decision(Verdict.WAIT, words)


def compared(canary: Scores, stable: Scores) -> str:
    """For people: both means and what they stand on."""
    return f"mean score {_shown(canary)} against {_shown(stable)}"


@lru_cache(maxsize=4096)
def exceeds(higher: Scores, lower: Scores, gap: float) -> bool:
    """Proof that mean(higher) > mean(lower) + gap, wrong with probability ERROR_RATE at most over all looks."""
    return proof(higher, lower, gap) >= -math.log(ERROR_RATE)


def proof(higher: Scores, lower: Scores, gap: float) -> float:
    """Log of the least capital against "mean(higher) <= mean(lower) + gap" that any pair of means leaves.

    `higher` wins less the larger its mean may be, `lower` the smaller; so the least is where the two means are just
    `gap` apart, and within a cell of means no less than the two capitals at its worse ends.
    """
    first, last = max(-1.0, -1.0 - gap), min(1.0, 1.0 - gap)
    ends = [first + (last - first) * cell / _CELLS for cell in range(_CELLS + 1)]
    above = [_capital(higher, mean + gap) for mean in ends[1:]]
    below = [_capital(lower.mirrored(), -mean) for mean in ends[:-1]]
    return min(map(sum, zip(above, below, strict=True)))


def _capital(scores: Scores, mean: float) -> float:
    """Log capital of betting that the mean score is above `mean`; starts at 0 and never falls below -log 7."""
    bets = [0.0]
    for bad, neutral, good in _factors(mean):
        bets.append(scores.bad * bad + scores.neutral * neutral + scores.good * good)
    most = max(bets)
    return most + math.log(sum(math.exp(bet - most) for bet in bets) / len(bets))


@lru_cache(maxsize=4096)
def _factors(mean: float) -> tuple[tuple[float, float, float], ...]:
    """log(1 - f + f·y/θ) of the scores -1, 0 and 1 (y = score + 1, θ = mean + 1), for each fraction."""
    theta = max(1.0 + mean, 1e-9)

    def logs(f: float) -> tuple[float, float, float]:
        return math.log(1.0 - f), math.log(1.0 - f + f / theta), math.log(1.0 - f + 2.0 * f / theta)

    return tuple(map(logs, _FRACTIONS))


def _shown(scores: Scores) -> str:
    return f"{scores.mean:.2f} ({scores.turns} turns)" if scores.mean is not None else "none (0 turns)"
