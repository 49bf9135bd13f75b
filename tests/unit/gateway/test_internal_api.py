"""The internal port: token, bodies, long polls, epochs."""

import asyncio

import pytest

from openclaw_core import wire
from tests.fakes.engine import FakeEngine
from tests.unit.gateway.running import TOKEN, config, conversation, running


@pytest.mark.parametrize("header", [None, "Bearer wrong", TOKEN])
async def test_every_route_wants_the_token(header):
    async with running() as gateway:
        headers = {"Authorization": header} if header else {}
        for method, path in [
            ("GET", "/internal/stats"),
            ("GET", "/state"),
            ("POST", "/internal/paused"),
            ("POST", "/internal/turns/lease"),
            ("POST", "/internal/samples/ack"),
        ]:
            async with gateway.http.request(method, gateway.internal_url + path, headers=headers) as response:
                assert response.status == 401
                assert (await response.json())["error"]["code"] == "invalid_api_key"


async def test_faulty_body_is_named():
    async with running() as gateway:
        status, body = await gateway.internal("/internal/samples/ack", {"trainer_epoch": -1, "ids": ["x"]})
        assert status == 400
        assert "trainer_epoch" in body["error"]["message"] and "ids" in body["error"]["message"]


async def test_judge_waits_for_a_turn_and_gets_it_when_its_next_state_comes():
    async with FakeEngine(reply="Hello") as engine, running(engine) as gateway:
        request = wire.LeaseTurns(worker="w", max_turns=4, lease_sec=60, wait_sec=10)
        waiting = asyncio.create_task(gateway.internal("/internal/turns/lease", request))
        await gateway.chat("Hi", session="s")
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await gateway.post(conversation("Hi", "Hello", "thanks"), session="s")
        _, body = await asyncio.wait_for(waiting, 1.0)
        (turn,) = wire.LeasedTurns.model_validate(body).turns
        assert (turn.session, turn.turn, turn.edited) == ("s", 1, False)


async def test_trainer_waits_for_a_batch_and_gets_it_when_the_last_score_comes():
    async with FakeEngine(reply="Hello") as engine, running(engine) as gateway:
        for session in ("a", "b"):
            await gateway.chat("Hi", session=session)
            await gateway.post(conversation("Hi", "Hello", "thanks"), session=session)
        waiting = asyncio.create_task(gateway.lease(2, wait_sec=10.0))
        await gateway.judge(most=1)
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await gateway.judge(most=1)
        leased = await asyncio.wait_for(waiting, 1.0)
        assert [sample.session for sample in leased.samples] == ["a", "b"]
        assert leased.lease


@pytest.mark.parametrize(
    ("leases", "wanted"),
    [
        ("turns", wire.LeaseTurns(worker="dead", max_turns=4, lease_sec=60, wait_sec=20)),
        (
            "samples",
            wire.LeaseSamples(trainer_epoch=1, batch=1, min_batch=1, batch_wait_sec=300, lease_sec=60, wait_sec=20),
        ),
    ],
)
async def test_long_poll_whose_client_died_leases_nothing(leases, wanted):
    async with FakeEngine(reply="Hello") as engine, running(engine) as gateway:
        await gateway.chat("Hi", session="s")
        waiting = asyncio.create_task(gateway.internal(f"/internal/{leases}/lease", wanted))
        await asyncio.sleep(0.2)
        waiting.cancel()
        await asyncio.wait([waiting])
        await asyncio.sleep(0.2)
        await gateway.post(conversation("Hi", "Hello", "thanks"), session="s")
        (judged,) = await gateway.judge()
        assert judged.session == "s"
        assert [sample.session for sample in (await gateway.lease(1)).samples] == ["s"]


async def test_turn_leased_in_the_moment_its_judge_died_is_given_back():
    async with FakeEngine(reply="Hello") as engine, running(engine) as gateway:
        await gateway.chat("Hi", session="s")
        await gateway.post(conversation("Hi", "Hello", "thanks"), session="s")
        store = gateway.parts.store
        request = wire.LeaseTurns(worker="dead", max_turns=4, lease_sec=60, wait_sec=20)
        dying = asyncio.create_task(store.lease_turns(request))
        await asyncio.sleep(0)  # the operation is on its way to the writer's thread
        dying.cancel()
        await asyncio.wait([dying])
        await store.stats({})  # the commit is over
        await store.upkeep()
        (judged,) = await gateway.judge()
        assert judged.session == "s"


async def test_long_poll_ends_empty_after_its_wait():
    async with running() as gateway:
        leased = await gateway.lease(2, wait_sec=0.2)
        assert (leased.lease, leased.samples) == ("", [])
        request = wire.LeaseTurns(worker="w", max_turns=4, lease_sec=60, wait_sec=0.2)
        assert (await gateway.internal("/internal/turns/lease", request))[1] == {"turns": []}


async def test_long_polls_end_when_the_gateway_stops():
    async with running() as gateway:
        request = wire.LeaseTurns(worker="w", max_turns=4, lease_sec=60, wait_sec=30)
        waiting = [
            asyncio.create_task(gateway.internal("/internal/turns/lease", request)),
            asyncio.create_task(gateway.lease(2, wait_sec=30.0)),
        ]
        await asyncio.sleep(0.1)
        gateway.parts.store.end_waits()
        (status, body), leased = await asyncio.wait_for(asyncio.gather(*waiting), 2.0)
        assert (status, body, leased.samples) == (200, {"turns": []}, [])


async def test_older_trainer_is_refused_with_409():
    async with running() as gateway:
        await gateway.lease(1, epoch=2)
        for path, body in [
            ("lease", wire.LeaseSamples(trainer_epoch=1, batch=1, min_batch=1, batch_wait_sec=0, lease_sec=1)),
            ("ack", wire.AckSamples(trainer_epoch=1, ids=[], version="0-00000000")),
            ("drop", wire.DropSamples(trainer_epoch=1, ids=[], reason="stale")),
            ("extend", wire.ExtendSamples(trainer_epoch=1, ids=[], lease_sec=1)),
            ("release", wire.ReleaseSamples(trainer_epoch=1, ids=[])),
        ]:
            status, answer = await gateway.internal(f"/internal/samples/{path}", body)
            assert (status, answer["error"]["code"]) == (409, "old_trainer_epoch")


async def test_refused_client_is_told_when_to_come_back_and_its_words_are_kept():
    setup = config(policy_training={"max_head_off_policyness": 0, "rollout_batch_size": 1, "min_batch": 1})
    async with FakeEngine(reply="Hello") as engine, running(engine, gateway=setup) as gateway:
        await gateway.chat("Hi", session="s")
        async with gateway.http.post(
            f"{gateway.url}/v1/chat/completions",
            json={"messages": conversation("Hi", "Hello", "thanks"), "session_id": "s"},
        ) as response:
            assert response.status == 429
            assert response.headers["Retry-After"] == "2"  # nothing came free since the start
            assert (await response.json())["error"]["code"] == "staleness_bound"
        # Another key (none at all) is another user: those words are not this session's.
        assert (await gateway.stats()).waiting.judge == 0
        status, _ = await gateway.post(conversation("Hi", "Hello", "thanks"), session="s")
        assert status == 429
        assert (await gateway.stats()).waiting.judge == 1
        assert (await gateway.stats()).refused == {"staleness_bound": 2}


async def test_refused_clients_are_sent_to_the_places_that_come_free_one_after_another():
    setup = config(policy_training={"max_head_off_policyness": 0, "rollout_batch_size": 1, "min_batch": 1})
    async with FakeEngine(reply="Hello") as engine, running(engine, gateway=setup) as gateway:
        await full_queue(gateway)
        await gateway.parts.store.upkeep()
        (sample,) = (await gateway.lease(1)).samples
        ack = wire.AckSamples(trainer_epoch=1, ids=[sample.id], version="1-0a1b2c3d")
        await gateway.internal("/internal/samples/ack", ack)
        await gateway.parts.store.upkeep()
        await gateway.chat("Hi", session="b")
        told = []
        for _ in range(5):
            body = {"messages": conversation("Hi")}
            async with gateway.http.post(f"{gateway.url}/v1/chat/completions", json=body) as response:
                assert response.status == 429
                told.append(int(response.headers["Retry-After"]))
        assert told == sorted(told) and told[-1] >= 4  # a place in a second, or what else it took here


async def full_queue(gateway):
    """One sample, which is all the queue takes."""
    await gateway.chat("Hi", session="a")
    await gateway.post(conversation("Hi", "Hello", "thanks"), session="a")
    await gateway.judge()


async def test_blocked_submission_is_refused_after_its_timeout():
    blocking = config(
        queue={"max_size": 1, "drop_policy": "block"},
        policy_training={"max_head_off_policyness": 0, "rollout_batch_size": 1, "min_batch": 1},
    ).model_copy(update={"block_timeout_sec": 1})
    async with FakeEngine(reply="Hello") as engine, running(engine, gateway=blocking) as gateway:
        await full_queue(gateway)
        status, body = await gateway.post(conversation("next"), session="b")
        assert (status, body["error"]["code"]) == (429, "queue_full")
        assert (await gateway.stats()).served == 1


async def test_client_that_leaves_while_it_is_blocked_takes_no_place():
    blocking = config(
        queue={"max_size": 1, "drop_policy": "block"},
        policy_training={"max_head_off_policyness": 0, "rollout_batch_size": 1, "min_batch": 1},
    )
    async with FakeEngine(reply="Hello") as engine, running(engine, gateway=blocking) as gateway:
        await full_queue(gateway)
        blocked = asyncio.create_task(gateway.post(conversation("next"), session="b"))
        await asyncio.sleep(0.2)
        blocked.cancel()
        await asyncio.sleep(0.2)
        (sample,) = (await gateway.lease(1)).samples
        ack = wire.AckSamples(trainer_epoch=1, ids=[sample.id], version="1-0a1b2c3d")
        await gateway.internal("/internal/samples/ack", ack)
        await asyncio.sleep(0.2)
        stats = await gateway.stats()
        assert (stats.served, stats.capacity, len(engine.requests)) == (1, 1, 1)


async def test_blocked_submission_gets_the_next_free_place():
    setup = config(
        queue={"max_size": 1, "drop_policy": "block"},
        policy_training={"max_head_off_policyness": 0, "rollout_batch_size": 1, "min_batch": 1},
    )
    async with FakeEngine(reply="Hello") as engine, running(engine, gateway=setup) as gateway:
        await full_queue(gateway)
        blocked = asyncio.create_task(gateway.post(conversation("next"), session="b"))
        await asyncio.sleep(0.2)
        assert not blocked.done()
        (sample,) = (await gateway.lease(1)).samples
        ack = wire.AckSamples(trainer_epoch=1, ids=[sample.id], version="1-0a1b2c3d")
        await gateway.internal("/internal/samples/ack", ack)
        assert (await asyncio.wait_for(blocked, 2.0))[0] == 200


async def test_stats_say_which_trainer_epoch_is_the_newest():
    async with FakeEngine() as engine, running(engine) as gateway:
        assert (await gateway.stats()).trainer_epoch == 0
        await gateway.lease(1, epoch=5)
        assert (await gateway.stats()).trainer_epoch == 5
        status, _ = await gateway.internal(
            "/internal/samples/ack", {"trainer_epoch": 4, "ids": [], "version": "1-0a1b2c3d"}
        )
        assert status == 409 and (await gateway.stats()).trainer_epoch == 5
