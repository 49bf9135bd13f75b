"""Hidden preference "prose, no lists": the task of the tiny model that tests train from scratch.

The tiny model knows nothing but the facts below (its warm-up corpus is made of them), so truth can be checked
exactly: an answer is correct when each of its sentences is a fact of the topic asked for.
"""

import re
from typing import Final

from openclaw_environment.tasks.preference import PreferenceTask

FACTS: Final[dict[str, tuple[str, ...]]] = {
    "bees": ("Bees make honey.", "Bees can fly.", "Bees live in hives."),
    "cats": ("Cats chase mice.", "Cats like milk.", "Cats sleep a lot."),
    "dogs": ("Dogs can bark.", "Dogs like bones.", "Dogs guard the house."),
    "cows": ("Cows eat grass.", "Cows give milk.", "Cows live on farms."),
    "fish": ("Fish can swim.", "Fish have fins.", "Fish live in water."),
    "birds": ("Birds have wings.", "Birds build nests.", "Birds sing songs."),
    "trees": ("Trees have leaves.", "Trees give shade.", "Trees grow tall."),
    "roses": ("Roses smell nice.", "Roses have thorns.", "Roses are often red."),
    "cars": ("Cars have wheels.", "Cars need roads.", "Cars burn fuel."),
    "trains": ("Trains run on rails.", "Trains carry people.", "Trains are long."),
    "planes": ("Planes fly high.", "Planes have wings.", "Planes need pilots."),
    "boats": ("Boats can float.", "Boats have sails.", "Boats cross the sea."),
    "apples": ("Apples are sweet.", "Apples grow on trees.", "Apples are round."),
    "bread": ("Bread is made of flour.", "Bread is baked hot.", "Bread tastes good."),
    "milk": ("Milk is white.", "Milk comes from cows.", "Milk is a drink."),
    "snow": ("Snow is cold.", "Snow is white.", "Snow falls in winter."),
    "rain": ("Rain is wet.", "Rain falls from clouds.", "Rain helps plants."),
    "the sun": ("The sun is hot.", "The sun gives light.", "The sun is a star."),
    "the moon": ("The moon is round.", "The moon shines at night.", "The moon is far away."),
    "stars": ("Stars are far away.", "Stars shine at night.", "Stars are very hot."),
    "bears": ("Bears like honey.", "Bears sleep in winter.", "Bears are strong."),
    "ants": ("Ants are small.", "Ants live in nests.", "Ants work hard."),
    "books": ("Books have pages.", "Books tell stories.", "Books are made of paper."),
    "clocks": ("Clocks show the time.", "Clocks have hands.", "Clocks can tick."),
}
HELD_OUT_TOPICS: Final = ("boats", "bears", "stars", "ants")
"""In the warm-up corpus, never asked in training."""
TEMPLATES: Final = ("Tell me about {}.", "What do you know about {}?", "Say something about {}.")

_BULLET = re.compile(r"^\s*([-*•]|\d+[.)])", re.MULTILINE)


def questions(topics: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(template.format(topic) for topic in topics for template in TEMPLATES)


def prefers(_question: str, answer: str) -> bool:
    """True for prose: an ended sentence of at least three words and no line that begins like a list item."""
    text = answer.strip()
    return _BULLET.search(text) is None and text.endswith(".") and len(text.split()) >= 3


def topic_of(question: str) -> str:
    """The longest topic named in the question; ValueError when there is none."""
    found = [topic for topic in FACTS if re.search(rf"\b{topic}\b", question)]
    if not found:
        raise ValueError(f"question {question!r} names no topic of this task")
    return max(found, key=len)


def is_correct(question: str, answer: str) -> bool:
    """True when the answer is made only of facts of the asked topic, at least one, in list form or prose."""
    bare = " ".join(_BULLET.sub(" ", answer).split())
    sentences = [part + "." for part in (piece.strip() for piece in bare.split(".")) if part]
    return bool(sentences) and bare.endswith(".") and set(sentences) <= set(FACTS[topic_of(question)])


NO_LISTS: Final = PreferenceTask(
    name="no_lists",
    training=questions(tuple(topic for topic in FACTS if topic not in HELD_OUT_TOPICS)),
    held_out=questions(HELD_OUT_TOPICS) * 4,
    quality=questions(HELD_OUT_TOPICS),
    prefers=prefers,
    is_correct=is_correct,
    suffix="",
    max_tokens=40,
    temperature=0.7,
)
