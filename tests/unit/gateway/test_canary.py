"""Two versions served side by side: a session keeps one, and scores are told apart by the version that answered."""

from datetime import UTC, datetime

import pytest

from openclaw_core import wire
from openclaw_core.leases import Canary
from openclaw_gateway.store import judging, stats, upkeep
from openclaw_gateway.store.schema import contents
from tests.fakes.engine import FakeEngine
from tests.unit.gateway.running import config, running
from tests.unit.gateway.stored import VERSION, Stored

OLD, NEW = "1-0a1b2c3d", "2-0a1b2c3d"
SESSIONS = [f"s{number}" for number in range(12)]
ROOMY = config(policy_training={"rollout_batch_size": 64})
ADAPTERS = config(policy_training={"lora": {"rank": 8, "publish": "adapter"}, "rollout_batch_size": 64})


def canary(epoch=3):
    return Canary(version=NEW, epoch=epoch, share=0.5, since=datetime(2026, 1, 1, tzinfo=UTC))


TAKEN = {session for session in SESSIONS if canary().takes(session)}


async def say(gateway, epoch, found, **more):
    word = wire.Paused(epoch=epoch, lease_sec=0, serving_version=OLD, canary=found, **more)
    await gateway.internal("/internal/paused", word.model_dump(mode="json"))


async def talk(gateway, *messages):
    """One turn of every session; the version that answered each."""
    replies = {session: await gateway.chat(*messages, session=session) for session in SESSIONS}
    return {session: reply["metadata"]["weight_version"] for session, reply in replies.items()}


async def judge_all(gateway, score):
    """Score everything that waits; how many that was. A judge gets a few at a time."""
    judged = 0
    while turns := await gateway.judge(score=score):
        judged += len(turns)
    return judged


async def test_sessions_keep_their_version_and_return_when_the_canary_ends():
    async with (
        FakeEngine(version=OLD) as old,
        FakeEngine(version=NEW) as new,
        running(old, new, gateway=ROOMY) as gateway,
    ):
        await say(gateway, 3, canary())
        wanted = {session: NEW if session in TAKEN else OLD for session in SESSIONS}
        assert 0 < len(TAKEN) < len(SESSIONS)
        assert await talk(gateway, "Hi") == wanted
        assert await talk(gateway, "Hi", "Hello, world.", "Well") == wanted
        await say(gateway, 4, None)
        assert set((await talk(gateway, "Hi", "Hello, world.", "Well", "Hello, world.", "Bye")).values()) == {OLD}


async def test_engine_that_changed_alone_is_asked_anew_before_anything_is_said_of_it():
    async with (
        FakeEngine(version=OLD) as old,
        FakeEngine(version=OLD) as changed,
        running(old, changed, gateway=ROOMY) as gateway,
    ):
        await say(gateway, 3, canary())
        assert set((await talk(gateway, "Hi")).values()) == {OLD}
        changed.version = NEW
        await say(gateway, 3, canary(), engines_changed=True)
        wanted = {session: NEW if session in TAKEN else OLD for session in SESSIONS}
        assert await talk(gateway, "Hi", "Hello, world.", "Well") == wanted


async def test_canary_whose_engine_is_gone_leaves_its_sessions_served_by_the_stable_version():
    async with FakeEngine(version=OLD) as old, running(old, gateway=ROOMY) as gateway:
        await say(gateway, 3, canary())
        assert set((await talk(gateway, "Hi")).values()) == {OLD}


async def test_engine_with_both_adapters_answers_each_session_with_its_own():
    async with FakeEngine(version="0-00000000") as engine, running(engine, gateway=ADAPTERS) as gateway:
        engine.adapters |= {OLD: "/weights/old", NEW: "/weights/new"}
        await say(gateway, 3, canary())
        assert await talk(gateway, "Hi") == {session: NEW if session in TAKEN else OLD for session in SESSIONS}


async def test_scores_are_told_apart_by_the_version_that_answered():
    async with (
        FakeEngine(version=OLD) as old,
        FakeEngine(version=NEW) as new,
        running(old, new, gateway=ROOMY) as gateway,
    ):
        await talk(gateway, "Hi")
        await talk(gateway, "Hi", "Hello, world.", "Well")
        assert await judge_all(gateway, 1) == len(SESSIONS)
        assert (await gateway.stats()).rollout is None, "nothing is told apart while no canary serves"
        await say(gateway, 3, canary())
        await talk(gateway, "Hi", "Hello, world.", "Well", "Hello, world.", "Bye")
        await talk(gateway, "Hi", "Hello, world.", "Well", "Hello, world.", "Bye", "Hello, world.", "So long")
        assert await judge_all(gateway, -1) == 2 * len(SESSIONS)
        told = (await gateway.stats()).rollout
        assert told is not None
        assert told.epoch == 3
        assert sum(scores["-1"] for scores in told.scores.values()) == 2 * len(SESSIONS)
        # Turns from before the canary were answered by whichever engine; its own sessions have come to it since.
        assert told.scores[NEW]["-1"] >= len(TAKEN)


@pytest.fixture
def store():
    return Stored()


def waiting(store, session):
    """A turn of this session that a judge has leased."""
    begun = store.turn("q", session=session)
    store.arrive("q", "ok", "thanks", session=session, untracked="n")
    return next(turn for turn in store.lease_turns() if turn.id == begun.turn_id)


def score(store, session, epoch, points=1):
    turn = waiting(store, session)
    request = wire.ScoreTurn(id=turn.id, lease=turn.lease, score=points, votes=[points])
    assert store.run(lambda tx: judging.score(tx, request, store.policy, epoch)) == [turn.id]


def told(store):
    return store.run(lambda tx: stats.stats(tx, store.policy, {})).rollout


def test_each_canary_is_counted_from_zero_and_the_one_before_is_forgotten(store):
    score(store, "a", 3)
    score(store, "b", 3, points=-1)
    assert told(store) == wire.RolloutScores(epoch=3, scores={VERSION: {"1": 1, "-1": 1}})
    score(store, "c", 7)
    assert told(store) == wire.RolloutScores(epoch=7, scores={VERSION: {"1": 1}})
    store.run(lambda tx: upkeep.upkeep(tx, store.policy, ()))
    assert told(store) == wire.RolloutScores(epoch=7, scores={VERSION: {"1": 1}})
    left = store.run(lambda tx: [name for name in upkeep.read(tx.connection) if name.startswith("rollout:")])
    assert left == [f"rollout:7:{VERSION}:1"]


def test_turn_that_two_versions_sampled_counts_for_neither(store):
    turn = waiting(store, "a")
    spans = b'[{"version":"1-0a1b2c3d","start":0,"end":1},{"version":"2-0a1b2c3d","start":1,"end":3}]'
    store.run(lambda tx: tx.connection.execute(contents.update().values(spans=spans)))
    request = wire.ScoreTurn(id=turn.id, lease=turn.lease, score=1, votes=[1])
    assert store.run(lambda tx: judging.score(tx, request, store.policy, 3)) == [turn.id]
    assert told(store) is None
