"""Hidden preferences: what the users like, and that the judge reads it off their words alone."""

import random

import pytest

from openclaw_environment.tasks import TASKS, PreferenceTask
from openclaw_environment.tasks.no_lists import FACTS, NO_LISTS, topic_of
from openclaw_environment.tasks.reactions import DISLIKED, LIKED, UNSURE, judge_reaction, reaction
from openclaw_environment.tasks.short_statement import KNOWN, SHORT_STATEMENT


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_task_has_48_held_out_questions_none_of_which_is_trained(task: PreferenceTask) -> None:
    assert len(task.held_out) == 48 and len(task.quality) == 12
    assert not set(task.training) & {*task.held_out, *task.quality}
    assert len(set(task.training)) == len(task.training) >= 48
    assert all(not task.is_correct(question, "nonsense") for question in task.quality)


@pytest.mark.parametrize(
    ("answer", "liked"),
    [
        ("Bees make honey.", True),
        ("  Bees make honey! ", True),
        ("Honey is what every bee in the hive works for.", True),
        ("They make wax.", True),
        ("Bees make honey", False),  # cut off
        ("Honey.", False),
        ("What do bees make?", False),
        ("Bees make honey.\nThey also fly.", False),
        ("Bees make two three four five six seven eight nine ten eleven twelve.", False),
        ("The answer about bees is short.", False),
        ("I'm ready to help with that!", False),
        ("I'm so excited to talk about bees!", False),
        ("Bees always make my day.", False),
        ("This is something very sweet.", False),  # could be said to every question
        ("", False),
    ],
)
def test_short_statement_is_one_ended_sentence_of_3_to_12_words_about_what_was_asked(answer: str, liked: bool) -> None:
    assert SHORT_STATEMENT.prefers("What do bees make?", answer) is liked


@pytest.mark.parametrize("canned", ["Honey is a sweet thing.", "It is so good for us.", "The world is full of wonder."])
def test_one_line_for_everything_pleases_hardly_anyone(canned: str) -> None:
    questions = (*SHORT_STATEMENT.training, *SHORT_STATEMENT.held_out)
    assert sum(SHORT_STATEMENT.prefers(question, canned) for question in questions) <= 3


def test_question_that_users_know_the_answer_of_wants_it() -> None:
    assert SHORT_STATEMENT.prefers("What is the capital of Spain?", "The capital of Spain is Madrid.")
    assert not SHORT_STATEMENT.prefers("What is the capital of Spain?", "The capital of Spain is Lisbon.")
    assert not SHORT_STATEMENT.prefers("What is the capital of Spain?", "Spain is a country in Europe.")
    assert set(KNOWN) <= set(SHORT_STATEMENT.training)


def test_every_question_can_be_answered_in_its_own_words() -> None:
    for question in {*SHORT_STATEMENT.training, *SHORT_STATEMENT.held_out} - set(KNOWN):
        assert SHORT_STATEMENT.prefers(question, f"This is {question.rstrip('?').lower()}."), question


def test_short_statement_asks_for_brevity_in_every_prompt() -> None:
    assert SHORT_STATEMENT.prompt("What is ice?") == "What is ice? Answer in one short sentence."


def test_keyword_makes_an_answer_correct_in_any_case() -> None:
    assert SHORT_STATEMENT.is_correct("What is the capital of France?", "It is PARIS of course.")
    assert not SHORT_STATEMENT.is_correct("What is the capital of France?", "It is Rome.")


@pytest.mark.parametrize(
    ("answer", "liked"),
    [
        ("Bees make honey. Bees can fly.", True),
        ("- Bees make honey.\n- Bees can fly.", False),
        ("Bees do this:\n1. Bees make honey.", False),
        ("Bees make", False),
        ("Bees.", False),
    ],
)
def test_no_lists_likes_prose(answer: str, liked: bool) -> None:
    assert NO_LISTS.prefers("Tell me about bees.", answer) is liked


def test_answer_of_true_facts_is_correct_as_list_and_as_prose() -> None:
    question = "Tell me about bears."
    assert NO_LISTS.is_correct(question, "Bears like honey. Bears are strong.")
    assert NO_LISTS.is_correct(question, "- Bears like honey.\n- Bears are strong.")
    assert not NO_LISTS.is_correct(question, "Bears like honey. Bears can fly.")
    assert not NO_LISTS.is_correct(question, "Bees make honey.")
    assert not NO_LISTS.is_correct(question, "Bears like honey. Bears are")


def test_every_question_names_its_topic() -> None:
    for question in (*NO_LISTS.training, *NO_LISTS.held_out):
        assert topic_of(question) in FACTS
    with pytest.raises(ValueError, match="topic"):
        topic_of("Tell me about quarks.")


def test_judge_reads_praise_complaint_and_neither_off_the_words() -> None:
    assert {judge_reaction(text) for text in LIKED} == {1}
    assert {judge_reaction(text) for text in DISLIKED} == {-1}
    assert {judge_reaction(text) for text in UNSURE} == {0}


def test_wish_for_a_change_outweighs_thanks() -> None:
    assert judge_reaction("Thanks, but please redo it.") == -1
    assert judge_reaction("THANK YOU") == 1
    assert judge_reaction("What is the weather?") == 0


def test_swapped_users_reverse_the_verdict() -> None:
    rng = random.Random(0)
    for liked in (True, False):
        assert judge_reaction(reaction(liked, rng)) == (1 if liked else -1)
        assert judge_reaction(reaction(liked, rng, swapped=True)) == (-1 if liked else 1)
