"""What a simulated user says next, and the rule by which the quickstart's judge endpoint reads it.

The judge never sees whether an answer was liked: only these words. Swapping who gets which reaction therefore
reverses what is learned.
"""

import random
import re
from typing import Final

LIKED: Final = (
    "Thanks, that is exactly how I like it.",
    "Perfect, thank you.",
    "Great answer, thanks!",
    "Yes, that is just what I wanted. Thank you!",
    "Good, that works well for me.",
)
DISLIKED: Final = (
    "No, please redo that. This is not what I wanted.",
    "I do not like this answer, try again.",
    "That is not helpful. Please answer differently.",
    "Wrong style, please rewrite it.",
    "Not what I asked for. Please do it again.",
)
UNSURE: Final = ("Hm, let me think about it.", "I see.")

_NEGATIVE = re.compile(
    r"\b(redo|again|rewrite|retry|differently|wrong|not (what|helpful|like|right|good)|"
    r"(do not|don't|didn't|did not) (like|want|ask|help))\b",
    re.IGNORECASE,
)
_POSITIVE = re.compile(r"\b(thanks|thank you|perfect|great|exactly|good|well done|just what)\b", re.IGNORECASE)


def reaction(liked: bool, rng: random.Random, *, swapped: bool = False) -> str:
    """The next user message after an answer; `swapped` users praise what they dislike and the reverse."""
    return rng.choice(LIKED if liked != swapped else DISLIKED)


def judge_reaction(text: str) -> int:
    """1 praise, -1 complaint or wish for a change, 0 neither.

    A wish for a change outweighs thanks: "Thanks, but please redo it" is −1.
    """
    if _NEGATIVE.search(text):
        return -1
    return 1 if _POSITIVE.search(text) else 0
