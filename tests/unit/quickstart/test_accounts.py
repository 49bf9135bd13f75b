import pytest

from examples.quickstart.accounts import Accounts, identity_residues
from openclaw_core.wire import Stats, Waiting

EVEN = Stats(
    served=110,
    recorded=90,
    untracked={"side": 20},
    trained=32,
    dropped={"final": 40, "unjudged": 1},
    queued=5,
    leased=8,
    waiting=Waiting(next_state=3, judge=1),
)


def test_nothing_is_lost_when_both_sides_agree() -> None:
    assert identity_residues(EVEN) == (0, 0)
    assert Accounts(answered=110, failed=0, stats=EVEN).lost() == 0


@pytest.mark.parametrize(("answered", "failed", "lost"), [(112, 0, 2), (107, 0, 3), (107, 3, 0), (105, 3, 2)])
def test_turns_one_side_does_not_know_are_lost_but_for_requests_that_broke_off(
    answered: int, failed: int, lost: int
) -> None:
    assert Accounts(answered=answered, failed=failed, stats=EVEN).lost() == lost


@pytest.mark.parametrize("change", [{"recorded": 89}, {"trained": 31}, {"queued": 6}, {"untracked": {}}])
def test_accounts_that_do_not_add_up_are_losses(change: dict[str, object]) -> None:
    assert Accounts(answered=110, failed=0, stats=EVEN.model_copy(update=change)).lost() > 0
