"""Which session a request joins, and which turn its next state belongs to."""

import pytest

from openclaw_core import wire
from openclaw_gateway import conversation
from openclaw_gateway.store import judging, turns
from openclaw_gateway.store.turns import Begun, Unrecorded
from tests.unit.gateway.stored import arrival, recording, talk


def next_states(store):
    """(turn number, texts of the next state, edited) of every turn the judge gets."""
    return [(t.turn, [m["content"] for m in t.next_state], t.edited) for t in store.lease_turns()]


def test_stock_client_continues_its_own_session(stored):
    store = stored()
    first = store.turn("hi", answer="hello")
    second = store.begin("hi", "hello", "how are you")
    assert (second.session, second.number) == (first.session, 2)
    assert next_states(store) == [(1, ["how are you"], False)]


def test_history_with_other_spelling_of_the_same_answer_matches(stored):
    store = stored()
    first = store.turn("hi", answer="hello ")
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "hello"}], "refusal": None},
        {"role": "user", "content": "more"},
    ]
    admission = store.run(lambda tx: turns.arrive(tx, arrival(messages), store.policy))
    assert isinstance(admission, Begun)
    assert admission.session == first.session


def test_two_anonymous_users_with_the_same_words_never_share_a_session(stored):
    store = stored()
    alice = store.turn("hi", answer="hello")
    bob = store.turn("hi", answer="hello")
    continued = store.begin("hi", "hello", "and now?")
    assert len({alice.session, bob.session, continued.session}) == 3
    assert store.lease_turns() == []


def test_other_api_key_never_joins_a_session(stored):
    store = stored()
    first = store.turn("hi", answer="hello", owner="alice")
    other = store.begin("hi", "hello", "more", owner="bob")
    assert other.session != first.session
    named = store.begin("x", session="s", owner="alice")
    same_name = store.begin("x", session="s", owner="bob")
    assert named.turn_id != same_name.turn_id
    assert same_name.number == 1


def test_contradicting_user_field_makes_a_new_session(stored):
    store = stored()
    first = store.turn("hi", answer="hello", hints={"user": "a"})
    assert store.begin("hi", "hello", "more", hints={"user": "b"}).session != first.session
    assert store.begin("hi", "hello", "more", hints={"user": "a"}).session == first.session


def test_user_field_tells_two_equal_conversations_apart(stored):
    store = stored()
    first = store.turn("hi", answer="hello", hints={"user": "a"})
    store.turn("hi", answer="hello", hints={"user": "b"})
    assert store.begin("hi", "hello", "more", hints={"user": "a"}).session == first.session


def test_next_state_is_every_message_after_the_answer(stored):
    store = stored()
    turn = store.begin("do it", session="s")
    call = {"role": "assistant", "content": None, "tool_calls": [_call("a", '{"x": 1}'), _call("b", "{}")]}
    chain = conversation.extend(conversation.outline(talk("do it")).chain, call)
    finished = turns.Finished(talk("do it"), call, chain, recording())
    store.run(lambda tx: turns.finish(tx, turn.turn_id, finished, store.policy))
    results = [
        {"role": "tool", "tool_call_id": "1", "content": "one"},
        {"role": "tool", "tool_call_id": "2", "content": "two"},
        {"role": "user", "content": "go on"},
    ]
    history = [*talk("do it"), call | {"content": "", "tool_calls": [_call("a", '{"x":1}'), _call("b", "{}")]}]
    store.run(lambda tx: turns.arrive(tx, arrival(history + results, session="s"), store.policy))
    (leased,) = store.lease_turns()
    assert leased.next_state == results
    assert leased.response == call


def _call(name, arguments):
    return {"id": f"call-{name}", "type": "function", "function": {"name": name, "arguments": arguments}}


def test_next_state_is_attached_even_if_the_request_is_refused(stored):
    store = stored(max_head_off_policyness=0, rollout_batch_size=1)
    store.turn("hi", answer="hello", session="s")
    assert not isinstance(store.arrive("hi", "hello", "more", session="s"), Begun)
    assert next_states(store) == [(1, ["more"], False)]


def test_edited_history_gives_what_follows_the_last_answer(stored):
    store = stored()
    store.turn("hi", answer="<think>hm</think>hello", session="s")
    store.begin("hi", "hello", "more", session="s")
    assert next_states(store) == [(1, ["more"], True)]


def test_same_prompt_again_is_no_reaction_to_its_answer(stored):
    store = stored()
    store.turn("hi", answer="raw hello", session="s")
    store.turn("hi", "hello", "more", answer="raw x", session="s")
    assert len(next_states(store)) == 1
    store.begin("hi", "hello", "more", session="s")
    assert store.lease_turns() == []
    assert store.stats().waiting.next_state == 1


def test_fresh_conversation_under_an_old_id_is_no_reaction(stored):
    store = stored()
    store.turn("hi", answer="hello", session="s")
    store.begin("something else", session="s")
    assert store.lease_turns() == []


def test_side_and_opted_out_requests_give_no_next_state(stored):
    store = stored()
    store.turn("hi", answer="hello", session="s")
    assert store.arrive("hi", "hello", "secret", session="s", opt_out=True) == Unrecorded("opt_out", None)
    assert store.lease_turns() == []


def test_opt_out_lasts_until_the_message_is_gone(stored):
    store = stored()
    for session in (None, "s"):
        store.turn("hi", answer="hello", session=session)
        store.arrive("hi", "hello", "secret", session=session, opt_out=True)
        chains = [conversation.outline(talk("hi", "hello", "secret", "fine")).chain]
        store.run(lambda tx, chains=chains: turns.count_untracked(tx, "opt_out", "alice", chains))
        quoting = store.arrive("hi", "hello", "secret", "fine", "next", session=session)
        assert quoting == Unrecorded("opt_out", None)
        assert isinstance(store.arrive("hi", "hello", "next", session=session), Begun)


def test_opt_out_of_an_opening_does_not_silence_others_who_open_alike(stored):
    store = stored()
    store.arrive("hi", opt_out=True)
    chains = [conversation.outline(talk("hi", "hello")).chain]
    store.run(lambda tx: turns.count_untracked(tx, "opt_out", "alice", chains))
    store.begin("hi")
    assert store.arrive("hi", "hello", "more") == Unrecorded("opt_out", None)
    store.begin("hi", "hello", "more", owner="bob")


@pytest.mark.parametrize("session", [None, "s"])
def test_opted_out_request_may_end_its_session(stored, session):
    store = stored()
    store.turn("hi", answer="hello", session=session)
    store.arrive("hi", "hello", "secret", session=session, opt_out=True)
    assert store.stats().waiting.next_state == 1
    store.arrive("hi", "hello", "secret", session=session, opt_out=True, done=True)
    assert (store.stats().dropped, store.stats().waiting.next_state) == ({"final": 1}, 0)


def test_opted_out_words_are_nowhere_in_the_database(stored):
    store = stored()
    store.turn("hi", answer="hello", session="s")
    store.arrive("hi", "hello", "MARKER", session="s", opt_out=True)
    assert "hello" in store.dump()
    assert "MARKER" not in store.dump()


def test_two_turns_of_a_session_in_flight_are_both_recorded(stored):
    store = stored()
    one, two = store.begin("a", session="s"), store.begin("b", session="s")
    store.finish(two, "b", answer="B")
    store.finish(one, "a", answer="A")
    store.begin("a", "A", "more a", session="s")
    store.begin("b", "B", "more b", session="s")
    assert next_states(store) == [(1, ["more a"], False), (2, ["more b"], False)]


def test_done_session_drops_its_last_turn_as_final(stored):
    store = stored()
    store.turn("hi", answer="hello", session="s")
    closing = store.begin("hi", "hello", "thanks", session="s", done=True)
    assert store.finish(closing, "hi", "hello", "thanks") == "final"
    assert next_states(store) == [(1, ["thanks"], False)]
    assert store.stats().dropped == {"final": 1}


def test_idle_session_ends_and_is_forgotten(stored):
    store = stored(session_idle_sec=100.0, next_state_grace_sec=0.0)
    for number in range(50):
        store.turn(f"hi {number}", answer="hello")
    store.now += 101
    store.upkeep()
    assert store.stats().dropped == {"final": 50}
    assert store.run(lambda tx: _rows(tx, "sessions")) == 0
    assert store.run(lambda tx: _rows(tx, "contents")) == 0


def _rows(tx, table):
    return tx.connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one()


def test_judging_waits_for_the_sessions_end_when_told_so(stored):
    store = stored(fire_on_turn_end=False)
    store.turn("hi", answer="hello", session="s")
    last = store.begin("hi", "hello", "more", session="s")
    assert store.lease_turns() == []
    store.finish(last, "hi", "hello", "more", answer="bye")
    closing = store.begin("hi", "hello", "more", "bye", "thanks", session="s", done=True)
    assert [turn.turn for turn in store.lease_turns()] == [1, 2]
    assert store.finish(closing, "x") == "final"


def test_retry_of_an_unfinished_attempt_is_the_same_turn(stored):
    store = stored()
    first = store.begin("hi")
    store.finish(first, "hi", drop="client_gone")
    again = store.begin("hi")
    assert (again.session, again.number) == (first.session, 1)
    shown = store.stats()
    assert (shown.served, shown.recorded, shown.untracked, shown.dropped) == (2, 1, {"replaced": 1}, {})


def test_retry_named_by_the_client_replaces_a_finished_attempt(stored):
    store = stored()
    store.turn("hi", session="s", answer="one")
    again = store.turn("hi", session="s", answer="two", is_retry=True)
    assert again.number == 1
    store.begin("hi", "two", "more", session="s")
    assert [turn.response["content"] for turn in store.lease_turns()] == ["two"]


def test_retry_of_a_running_attempt_leaves_the_first_nothing_to_finish(stored):
    store = stored()
    first = store.begin("hi", session="s", idempotency_key="k")
    second = store.begin("hi", session="s", idempotency_key="k")
    store.finish(first, "hi", answer="one")
    store.finish(second, "hi", answer="two")
    shown = store.stats()
    assert (shown.recorded, shown.waiting.next_state, shown.untracked) == (1, 1, {"replaced": 1})


def test_retry_of_a_leased_attempt_is_served_untracked(stored):
    store = stored()
    store.scored("s")
    store.lease_samples(1)
    assert store.arrive("q", session="s", is_retry=True) == Unrecorded("replaced", "s")


def test_unfinished_attempt_of_long_ago_is_nobodys_retry(stored):
    store = stored()
    first = store.begin("hi")
    store.finish(first, "hi", drop="client_gone")
    store.now += 1000
    assert store.begin("hi").session != first.session


def test_client_may_go_on_under_the_name_it_was_given(stored):
    store = stored()
    first = store.turn("hi", answer="hello")
    second = store.begin("hi", "hello", "more", session=first.session)
    assert (second.session, second.number) == (first.session, 2)
    assert store.begin("hi", session=first.session, owner="bob").number == 1


def test_same_text_twice_on_purpose_is_two_turns(stored):
    store = stored()
    assert store.turn("hi", session="s").number == 1
    assert store.turn("hi", session="s").number == 2


def test_retry_count_alone_never_joins_another_anonymous_users_session(stored):
    store = stored()
    alice = store.turn("hi", answer="hello")
    bob = store.begin("hi", is_retry=True)
    assert bob.session != alice.session
    assert store.stats().recorded == 2


@pytest.mark.parametrize("finished", [False, True])
def test_retry_within_a_conversation_is_the_same_turn_without_a_session_id(stored, finished):
    """The first attempt still generates, or its answer was lost on the way."""
    store = stored()
    first = store.turn("hi", answer="hello")
    lost = store.begin("hi", "hello", "more")
    if finished:
        store.finish(lost, "hi", "hello", "more", answer="one")
    again = store.begin("hi", "hello", "more", is_retry=True)
    assert (again.session, again.number) == (first.session, lost.number)
    shown = store.stats()
    assert (shown.recorded, shown.untracked, shown.waiting.generating) == (2, {"replaced": 1}, 1)


def test_abandoned_turn_deep_in_a_session_is_not_taken_over_by_a_twin(stored):
    store = stored()
    alice = store.turn("hi", answer="hello")
    store.turn("hi", answer="hello")  # bob, the same words
    lost = store.begin("hi", "hello", "more", session=None)
    store.finish(lost, "hi", "hello", "more", drop="client_gone")
    again = store.begin("hi", "hello", "more")
    assert again.session not in {alice.session, lost.session}


def test_sync_judging_leases_one_turn_of_a_session_at_a_time(stored):
    store = stored(judge_in_order=True)
    for session in ("s", "t"):
        store.turn("a", answer="A", session=session)
        store.turn("a", "A", "b", answer="B", session=session)
        store.begin("a", "A", "b", "B", "c", session=session)
    first = store.lease_turns()
    assert [(turn.session, turn.turn) for turn in first] == [("s", 1), ("t", 1)]
    assert store.lease_turns() == []
    request = wire.ScoreTurn(id=first[0].id, lease=first[0].lease, score=0, votes=[0])
    store.run(lambda tx: judging.score(tx, request, store.policy))
    assert [(turn.session, turn.turn) for turn in store.lease_turns()] == [("s", 2)]


def test_messages_reach_the_judge_as_they_were_sent(stored):
    store = stored()
    store.turn("hi", answer="hello", session="s")
    store.begin("hi", "hello", "more", session="s")
    (turn,) = store.lease_turns()
    assert turn.messages == talk("hi")
    assert turn.next_state == [{"role": "user", "content": "more"}]
