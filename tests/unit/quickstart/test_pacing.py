import pytest

from examples.quickstart.pacing import Move, Pace

PACE = Pace(minutes=20, max_updates=40)


@pytest.mark.parametrize(
    ("rates", "last_look", "elapsed", "move"),
    [
        ([], 0, 0, Move.WATCH),
        ([0.9, 0.9], 0, 60, Move.WATCH),
        ([0.9, 0.9, 0.9], 0, 60, Move.EXAMINE),
        ([0.2, 0.2, 0.9], 0, 60, Move.WATCH),
        ([0.3, 0.7, 0.7, 0.7], 0, 60, Move.EXAMINE),
        ([0.6, 0.6, 0.6, 0.6], 0, 60, Move.WATCH),
        ([0.9] * 5, 3, 60, Move.WATCH),
        ([0.9] * 6, 3, 60, Move.EXAMINE),
        ([0.9] * 3 + [0.7] * 3, 3, 60, Move.EXAMINE),
        ([0.5] * 40, 0, 60, Move.STOP),
        ([0.5], 0, 1200, Move.STOP),
    ],
)
def test_pace_looks_first_when_three_batches_suggest_it_then_soon_again_and_stops_at_the_bounds(
    rates: list[float], last_look: int, elapsed: float, move: Move
) -> None:
    assert PACE.next_move(rates, last_look=last_look, elapsed_sec=elapsed) is move
