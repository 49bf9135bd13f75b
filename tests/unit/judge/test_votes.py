import pytest

from openclaw_judge import votes


@pytest.mark.parametrize(
    ("text", "vote"),
    [
        (r"The user is happy. \boxed{1}", 1),
        (r"\boxed{-1}", -1),
        (r"\boxed{ +1 }", 1),
        (r"\boxed{0}", 0),
        (r"maybe \boxed{1} but no, \boxed{-1}", -1),
        (r"\boxed{$-1$}", -1),
    ],
)
def test_parse_takes_the_last_box(text: str, vote: int) -> None:
    assert votes.parse(text) == vote


@pytest.mark.parametrize("text", [None, "", "1", r"\boxed{good}", r"\boxed{1} \boxed{5}", r"\boxed{11}", r"\boxed{}"])
def test_parse_gives_no_vote_without_a_usable_last_box(text: str | None) -> None:
    assert votes.parse(text) is None


@pytest.mark.parametrize(
    ("ballots", "score"),
    [
        ([1], 1),
        ([1, 1, -1], 1),
        ([1, -1, None], 0),
        ([1, 0, -1], 0),
        ([None, None, -1], -1),
        ([0, 0, 1, 1, -1], 0),
        ([None], None),
        ([], None),
    ],
)
def test_majority_ties_are_zero_and_no_vote_is_none(ballots: list[int | None], score: int | None) -> None:
    assert votes.majority(ballots) == score
