"""Export, retention and erasure: what is kept can be had, and what is erased is in no file any more."""

import orjson
import pytest

from openclaw_core import wire
from openclaw_gateway.store import records, turns, upkeep
from openclaw_gateway.store.store import FILE_NAME
from tests.fakes.engine import FakeEngine
from tests.unit.gateway.running import TOKEN, conversation, running

MARKER = "Zwetschgendatschi"
DAY = 86400.0


def exported(store, *states, session=None):
    page = store.run(lambda tx: records.page(tx, 0, states, session))
    return [wire.ExportedTurn.model_validate_json(line) for line in page.lines.splitlines()]


def erase(store, session, owner=None):
    return store.run(lambda tx: records.erase(tx, wire.EraseSession(session=session, owner=owner)))


def test_export_has_what_was_said_sampled_and_decided(stored):
    store = stored()
    trained = store.scored("a", score=-1)
    store.lease_samples(1)
    store.ack(trained)
    store.turn("still waits", session="b")
    store.begin("generates", session="c")
    gone = store.begin("lost", session="d")
    store.finish(gone, "lost", drop="client_gone")
    shown = {turn.session: turn for turn in exported(store)}
    assert set(shown) == {"a", "b", "d"}
    assert (shown["a"].state, shown["a"].score, shown["a"].votes) == ("trained", -1, [-1])
    assert shown["a"].messages == [{"role": "user", "content": "q"}]
    assert shown["a"].next_state == [{"role": "user", "content": "thanks"}]
    assert (shown["a"].output_ids, shown["a"].rollout_logprobs) == ([0, 1, 2], [-0.5] * 3)
    assert (shown["d"].state, shown["d"].reason, shown["d"].messages) == ("dropped", "client_gone", None)
    assert [turn.session for turn in exported(store, "trained", "dropped")] == ["a", "d"]
    assert [turn.session for turn in exported(store, session="b")] == ["b"]


def test_export_goes_on_where_a_page_ended(stored):
    store = stored(max_head_off_policyness=9)
    for number in range(records.PAGE + 3):
        store.turn("q", session=f"s{number}")
    first = store.run(lambda tx: records.page(tx, 0, (), None))
    rest = store.run(lambda tx: records.page(tx, first.last_id, (), None))
    assert (first.lines.count(b"\n"), rest.lines.count(b"\n"), rest.last_id) == (records.PAGE, 3, None)


def test_erased_session_leaves_the_accounts_whole(stored):
    store = stored(max_head_off_policyness=0, rollout_batch_size=4)
    trained = store.scored("gone")
    store.lease_samples(1)
    store.ack(trained)
    leased = store.scored("gone")
    store.lease_samples(1)
    store.turn("waits", session="gone")
    generating = store.begin("generates", session="gone")
    kept = store.scored("kept")
    assert erase(store, "gone") == wire.Erased(turns=4, sessions=1)
    shown = store.stats()
    assert (shown.trained, shown.dropped, shown.queued, shown.capacity) == (1, {"erased": 3}, 1, 3)
    assert store.ack(leased) == []
    assert store.finish(generating, "generates") is None
    assert [turn.id for turn in exported(store)] == [kept]
    assert "gone" not in store.dump()


def test_erasure_can_be_bound_to_one_key(stored):
    store = stored()
    store.turn("q", session="s", owner="alice")
    store.turn("q", session="s", owner="bob")
    assert erase(store, "s", "alice") == wire.Erased(turns=1, sessions=1)
    assert [turn.owner for turn in exported(store)] == ["bob"]
    assert erase(store, "nobody's") == wire.Erased(turns=0, sessions=0)


@pytest.mark.parametrize(("policy", "later", "left"), [({"kept_turns": 2}, 0, 2), ({"kept_sec": DAY}, 2 * DAY, 0)])
def test_ended_turns_are_kept_as_long_as_the_policy_says(stored, policy, later, left):
    store = stored(**policy)
    for number in range(5):
        store.finish(store.begin(f"q{number}"), f"q{number}", drop="client_gone")
    store.now += later
    store.run(lambda tx: upkeep.forget_ended_turns(tx, store.policy))
    assert len(exported(store)) == left
    assert store.stats().dropped == {"client_gone": 5}


def test_living_turns_are_never_forgotten(stored):
    store = stored(kept_turns=1, kept_sec=DAY)
    for number in range(3):
        store.turn(f"q{number}")
    store.now += 2 * DAY
    store.run(lambda tx: upkeep.forget_ended_turns(tx, store.policy))
    assert len(exported(store)) == 3
    store.run(turns.lose_everything)


def files(directory):
    return b"".join(file.read_bytes() for file in directory.iterdir() if file.name.startswith(FILE_NAME))


async def test_erased_words_are_in_no_file(tmp_path):
    async with FakeEngine(reply=f"I like {MARKER}") as engine, running(engine, directory=tmp_path) as gateway:
        await gateway.chat(f"What is {MARKER}?", session=f"about-{MARKER}")
        await gateway.chat(f"What is {MARKER}?", f"I like {MARKER}", "Thanks", session=f"about-{MARKER}")
        await gateway.judge()
        assert MARKER.encode() in files(tmp_path)
        status, erased = await gateway.internal("/internal/sessions/erase", {"session": f"about-{MARKER}"})
        assert (status, erased) == (200, {"turns": 2, "sessions": 1})
        assert MARKER.encode() not in files(tmp_path)
        await gateway.stats()


async def test_words_of_dropped_turns_are_in_no_file_once_the_log_is_folded_in(tmp_path):
    async with FakeEngine(reply=MARKER) as engine, running(engine, directory=tmp_path) as gateway:
        await gateway.chat("Hi", session="s")
        await gateway.chat("Bye", session="s", session_done=True)
        await gateway.parts.store._writer.scrub()
        assert (await gateway.stats()).dropped == {"final": 2}
        assert MARKER.encode() not in files(tmp_path)


async def test_export_streams_over_the_internal_port():
    async with FakeEngine(reply="Hello") as engine, running(engine) as gateway:
        await gateway.chat("Hi", session="s")
        await gateway.post(conversation("Hi", "Hello", "thanks"), session="s")
        headers = {"Authorization": f"Bearer {TOKEN}"}
        url = f"{gateway.internal_url}/internal/export"
        async with gateway.http.get(f"{url}?state=judge&session=s", headers=headers) as response:
            assert response.headers["Content-Type"] == "application/x-ndjson"
            (line,) = (await response.read()).splitlines()
        assert orjson.loads(line)["next_state"] == [{"role": "user", "content": "thanks"}]
        async with gateway.http.get(f"{url}?state=nowhere", headers=headers) as response:
            assert response.status == 400
        async with gateway.http.get(url) as response:
            assert response.status == 401
