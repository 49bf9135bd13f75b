"""The comparison of canary and stable version: what it promises, held against chance and against hostile counts."""

import math
import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as some

from openclaw_core.config.policy_serving import Rollout
from openclaw_operator.weightsync import rollout
from openclaw_operator.weightsync.rollout import Decision, Scores, Verdict, decide

COUNTS = some.builds(Scores, *[some.integers(0, 400)] * 3)
CHANCES = some.tuples(*[some.floats(0.0, 1.0)] * 3).filter(lambda found: sum(found) > 0.01)
LIMITS = Rollout(min_turns=50, max_duration_sec=600, max_score_drop=0.2)
LIKED, MIXED, HATED = Scores(0, 0, 400), Scores(180, 40, 180), Scores(400, 0, 0)


def look(canary: Scores, stable: Scores, *, drift: float | None = None, elapsed: float = 0.0) -> Decision:
    return decide(LIMITS, canary, stable, drift=drift, elapsed_sec=elapsed)


def more(scores: Scores, score: int) -> Scores:
    return Scores(scores.bad + (score == -1), scores.neutral + (score == 0), scores.good + (score == 1))


@given(scores=COUNTS, chances=CHANCES, above=some.floats(0.0, 2.0))
def test_no_player_wins_on_average_where_the_bet_is_wrong(
    scores: Scores, chances: tuple[float, float, float], above: float
) -> None:
    """One more turn, drawn with any mean at or below the one that is bet against, raises no capital: so Ville holds."""
    bad, neutral, good = (chance / sum(chances) for chance in chances)
    mean = min(1.0, good - bad + above)
    assume(mean > -0.999)
    expected = sum(
        chance * math.exp(rollout._capital(more(scores, score), mean) - rollout._capital(scores, mean))
        for score, chance in ((-1, bad), (0, neutral), (1, good))
    )
    assert expected <= 1.0 + 1e-9


@given(
    higher=COUNTS, lower=COUNTS, mean=some.floats(-1.0, 1.0), below=some.floats(0.0, 2.0), gap=some.floats(-1.0, 1.0)
)
def test_proof_is_never_more_than_what_the_true_means_leave(
    higher: Scores, lower: Scores, mean: float, below: float, gap: float
) -> None:
    """Whatever pair of means with mean(higher) <= mean(lower) + gap is the true one."""
    true_higher = max(-1.0, mean + gap - below)
    assume(true_higher <= min(1.0, mean + gap))
    left = rollout._capital(higher, true_higher) + rollout._capital(lower.mirrored(), -mean)
    assert rollout.proof(higher, lower, gap) <= left + 1e-6


@given(canary=COUNTS, stable=COUNTS, late=some.floats(0.0, 1e6))
def test_it_is_always_decided_when_the_time_is_over(canary: Scores, stable: Scores, late: float) -> None:
    assert look(canary, stable, elapsed=LIMITS.max_duration_sec + late).verdict is not Verdict.WAIT


@given(few=some.builds(Scores, *[some.integers(0, 16)] * 3), many=COUNTS)
def test_nothing_is_decided_by_scores_of_too_few_turns(few: Scores, many: Scores) -> None:
    assert look(few, many).verdict is Verdict.WAIT
    assert look(many, few).verdict is Verdict.WAIT


def draw(chance: random.Random, mean: float) -> int:
    """A score with this mean, 0 in a fifth of all cases."""
    return 0 if chance.random() < 0.2 else (1 if chance.random() < (1 + mean / 0.8) / 2 else -1)


def promotions(canary_mean: float, stable_mean: float, *, runs: int, seed: int) -> int:
    """Of so many canaries of 400 turns, looked at after every 20 turns."""
    chance, promoted = random.Random(seed), 0
    for _ in range(runs):
        canary, stable = Scores(), Scores()
        while canary.turns < 400:
            for _ in range(20):
                if chance.random() < 0.4:
                    canary = more(canary, draw(chance, canary_mean))
                else:
                    stable = more(stable, draw(chance, stable_mean))
            verdict = look(canary, stable).verdict
            if verdict is not Verdict.WAIT:
                promoted += verdict is Verdict.PROMOTE
                break
    return promoted


@pytest.mark.parametrize("seed", [0, 1])
def test_worse_version_is_promoted_no_more_often_than_the_error_rate(seed: int) -> None:
    """At the very limit of what may be lost, and looked at some forty times; 40 runs at 5 % are 2 in the mean."""
    assert promotions(0.1, 0.3, runs=40, seed=seed) <= 6


def test_equally_good_version_is_promoted_given_turns() -> None:
    assert promotions(0.5, 0.3, runs=20, seed=1) >= 18


@pytest.mark.parametrize(
    ("canary", "stable", "verdict"),
    [
        (LIKED, LIKED, Verdict.PROMOTE),
        (LIKED, HATED, Verdict.PROMOTE),
        (MIXED, LIKED, Verdict.ROLL_BACK),
        (HATED, LIKED, Verdict.ROLL_BACK),
        (Scores(24, 4, 24), Scores(24, 4, 24), Verdict.WAIT),
    ],
)
def test_clear_cases_are_decided_early_and_the_rest_is_watched(
    canary: Scores, stable: Scores, verdict: Verdict
) -> None:
    assert look(canary, stable).verdict is verdict


def test_canary_nobody_talked_to_is_rolled_back_at_the_end_and_says_so() -> None:
    found = look(Scores(), LIKED, elapsed=600.0)
    assert found.verdict is Verdict.ROLL_BACK
    assert found.why == "mean score none (0 turns) against 1.00 (400 turns): not shown to be good enough within 600 s"


def test_drift_beyond_its_limit_rolls_back_whatever_the_scores_say() -> None:
    strict = LIMITS.model_copy(update={"max_drift": 0.05})
    assert decide(strict, LIKED, LIKED, drift=0.06, elapsed_sec=0.0).verdict is Verdict.ROLL_BACK
    assert decide(strict, LIKED, LIKED, drift=0.05, elapsed_sec=0.0).verdict is Verdict.PROMOTE
    assert decide(strict, LIKED, LIKED, drift=None, elapsed_sec=0.0).verdict is Verdict.PROMOTE
    assert look(LIKED, LIKED, drift=9.0).verdict is Verdict.PROMOTE, "maxDrift None: not looked at"
