"""Which later requests still contain what was opted out of, told without a session id."""

import pytest

from openclaw_gateway import conversation
from openclaw_gateway.store import opt_outs, statements, turns
from openclaw_gateway.store.transaction import Transaction
from openclaw_gateway.store.turns import Begun, Unrecorded
from tests.unit.gateway.stored import arrival, talk

OUT = Unrecorded("opt_out", None)


def system(text, *texts):
    return [{"role": "system", "content": text}, *talk(*texts)]


def ask(store, messages, **fields):
    arrived = arrival(messages, **fields)
    return store.run(lambda tx: turns.arrive(tx, arrived, store.policy))


def opt_out(store, messages, *answers, **fields):
    """An opted-out request and the choices it was answered with; without any it failed."""
    assert ask(store, messages, opt_out=True, **fields) == OUT
    if answers:
        said = [{"role": "assistant", "content": answer} for answer in answers]
        chains = [conversation.exchange(messages, message) for message in said]
        store.run(lambda tx: turns.count_untracked(tx, "opt_out", "alice", chains))


def test_message_whose_turn_failed_is_known_again(stored):
    store = stored()
    store.turn("a", answer="b")
    opt_out(store, talk("a", "b", "secret"))
    assert ask(store, [*talk("a", "b", "secret"), *talk("more")]) == OUT
    assert ask(store, talk("a", "b", "secret", "half an ans", "more")) == OUT
    assert store.lease_turns() == []
    assert isinstance(ask(store, talk("a", "b", "something else")), Begun)


@pytest.mark.parametrize("answers", [[], ["fine"]])
def test_message_is_known_again_under_another_system_prompt(stored, answers):
    store = stored()
    opt_out(store, system("it is Monday", "a", "b", "secret"), *answers)
    assert ask(store, system("it is Tuesday", "a", "b", "secret", "fine", "more")) == OUT


def test_message_is_known_again_when_older_ones_are_gone(stored):
    store = stored()
    opt_out(store, talk("a", "b", "secret"), "fine")
    assert ask(store, talk("secret", "fine", "more")) == OUT
    assert isinstance(ask(store, talk("secrets", "fine", "more")), Begun)


def test_whichever_choice_it_goes_on_from(stored):
    store = stored()
    opt_out(store, talk("a", "b", "secret"), "one", "two")
    for choice in ("one", "two"):
        assert ask(store, talk("secret", choice, "more")) == OUT


def test_answer_that_was_begun_by_the_client(stored):
    store = stored()
    opt_out(store, talk("a", "b", "secret", "I think"), " so")
    assert ask(store, talk("a", "b", "secret", "I think so", "more")) == OUT
    assert ask(store, talk("secret", "I think so", "more")) == OUT


def test_opening_whose_turn_failed_is_known_in_every_longer_history(stored):
    store = stored()
    opt_out(store, system("it is Monday", "secret"))
    assert ask(store, [*system("it is Tuesday", "secret"), *talk("more")]) == OUT
    assert ask(store, system("it is Monday", "secret", "half an ans", "more")) == OUT
    assert ask(store, system("it is Monday", "secret", "half an ans", "more", "b", "c")) == OUT


def test_opening_that_others_share_silences_none_of_them(stored):
    """Whoever opens alike is another one while that is all there is, and goes on from an answer of his own."""
    store = stored()
    opt_out(store, talk("hi"))
    other = store.turn("hi", answer="hello")
    assert ask(store, talk("hi", "hello", "more")).session == other.session
    assert isinstance(ask(store, talk("hi", "hel", "more"), session="named"), Begun)
    assert isinstance(ask(store, talk("hi", "hel", "more"), owner="bob"), Begun)
    assert ask(store, talk("hi", "hel", "more")) == OUT


def test_greeting_of_the_application_is_part_of_the_opening(stored):
    store = stored()
    greeting = {"role": "assistant", "content": "what can I do?"}
    opt_out(store, [greeting, *talk("hi")])
    assert isinstance(ask(store, [greeting, *talk("hi")]), Begun)


def test_session_is_tracked_again_though_its_later_turns_were_not(stored):
    """What was only said in the presence of the message is not opted out of."""
    store = stored()
    opt_out(store, talk("a", "b", "secret"), "fine")
    later = talk("a", "b", "secret", "fine", "next")
    assert ask(store, later) == OUT
    whole = conversation.extend(conversation.outline(later).chain, talk("", "yes")[1])
    store.run(lambda tx: turns.count_untracked(tx, "opt_out", "alice", [whole]))
    assert isinstance(ask(store, talk("next", "yes", "more")), Begun)


def test_words_opted_out_of_again_are_known_for_as_long_again(stored):
    store = stored()
    for _ in range(3):
        opt_out(store, talk("a", "b", "secret"))
        store.now += 6 * 24 * 3600
        store.upkeep()
        assert ask(store, talk("a", "b", "secret", "fine", "more")) == OUT


def test_very_long_history_is_looked_through(stored):
    store = stored()
    opt_out(store, talk("a", "b", "secret"))
    texts = [f"{number}" for number in range(40_000)]
    assert ask(store, talk("a", "b", "secret", *texts, "x"), session="s") == OUT


def test_owner_who_never_opted_out_pays_one_look_up_a_commit(stored, monkeypatch):
    store, run = stored(), []
    opt_out(store, talk("a", "b", "secret"), owner="bob")
    real = Transaction.run
    monkeypatch.setattr(Transaction, "run", lambda tx, *given: run.append(given[0]) or real(tx, *given))
    monkeypatch.setattr(Transaction, "connection", property(lambda tx: pytest.fail("a statement that is not prepared")))
    arrived = [arrival(talk("a", "b", "c")), arrival(talk("d", "e", "f"), session="s")]
    found = store.run(lambda tx: [opt_outs.applies(tx, one) for one in arrived])
    assert (found, run) == ([False, False], [statements.ANY_OPT_OUT])
