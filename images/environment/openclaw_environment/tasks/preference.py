"""What a hidden preference is: questions to ask, how an answer is liked, how its truth is checked.

The policy is never told the preference; it only sees what the users say next (`reactions`). The quality check is no
part of the reward: it guards against answers that please and say nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class PreferenceTask:
    """One hidden preference. Held-out questions share no question with the training ones."""

    name: str
    training: tuple[str, ...]
    held_out: tuple[str, ...]
    quality: tuple[str, ...]
    """Questions of the quality guard, asked greedily before and after."""
    prefers: Callable[[str, str], bool]
    """(question, answer) → True when the users like this answer."""
    is_correct: Callable[[str, str], bool]
    """(quality question, answer) → True when the answer says what is asked."""
    suffix: str = ""
    """Appended to every question, in training and evaluation alike."""
    max_tokens: int = 24
    temperature: float = 0.7

    def prompt(self, question: str) -> str:
        """The user message of a question."""
        return question + self.suffix
