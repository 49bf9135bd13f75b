"""From what judges wrote to one score. Pure."""

import re
from collections import Counter
from collections.abc import Sequence

_BOX = re.compile(r"\\boxed\s*\{\s*\$?\s*([+-]?)\s*(\d+)\s*\$?\s*\}")


def parse(text: str | None) -> int | None:
    r"""Score of the last `\boxed{…}` with a number in it; None without one or outside {-1, 0, 1}.

    Only the last box counts, also when it is unusable: an earlier one is a thought on the way.
    """
    boxes = _BOX.findall(text or "")
    if not boxes:
        return None
    sign, digits = boxes[-1]
    value = int(digits) * (-1 if sign == "-" else 1)
    return value if value in (-1, 0, 1) else None


def majority(votes: Sequence[int | None]) -> int | None:
    """The most frequent vote; 0 on a tie for the top; None when no vote parsed (the turn is dropped `unjudged`)."""
    counts = Counter(vote for vote in votes if vote is not None)
    if not counts:
        return None
    (winner, most), *others = counts.most_common()
    return 0 if others and others[0][1] == most else winner
