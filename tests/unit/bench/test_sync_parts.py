"""What the bench of the weight sync makes of what gateways and engines noted."""

import asyncio

import aiohttp
from aiohttp import web

from bench import sync_parts
from bench.orders import Orders
from bench.real_engine import Turns, Whole
from bench.stand_ins import Row
from bench.sync_parts import Sync

SYNC = Sync.of(
    published=100.0,
    windows=[Row(7, 100.25, 101.5), Row(7, 100.5, 101.25)],
    updates=[Row(0, 100.5625, 100.8125), Row(0, 100.625, 101.125)],
)


def test_parts_of_a_sync_lead_from_the_publication_to_the_last_word_of_the_release() -> None:
    parts = Sync(prepare=0.25, announce=0.25, ack=0.0625, update=0.5, fastest=0.25, release=0.375, window=1.25)
    assert parts == SYNC
    assert SYNC.overhead == 0.75


def test_table_has_a_figure_for_every_column() -> None:
    head, rule = sync_parts.head(("model", "engines"), "copy").splitlines()
    line = sync_parts.line(("tiny", 2), [SYNC], [0.001])
    assert head == (
        "| model | engines | prepare | announce | ack | update | fastest | release | window | overhead | copy |"
    )
    assert line == "| tiny | 2 | 250.0 | 250.0 | 62.5 | 500.0 | 250.0 | 375.0 | 1250.0 | 750.0 | 1.0 |"
    assert rule.count("---") == head.count("|") - 1 == line.count("|") - 1


def test_figures_of_real_engines_name_window_update_and_copy() -> None:
    slow = Sync(prepare=0.5, announce=0.0, ack=0.5, update=1.5, fastest=1.0, release=0.5, window=2.5)
    whole = Whole(2, size=10, partial=1, syncs=[SYNC, slow, slow], engines=[0.4, 1.4, 1.4], copies=[0.5, 0.5, 0.5])
    assert whole.figures("tiny") == {
        "tiny_bytes": 10,
        "tiny_engines": 2,
        "tiny_partial": 1,
        "tiny_prepare_ms": 500.0,
        "tiny_announce_ms": 0.0,
        "tiny_ack_ms": 500.0,
        "tiny_update_ms": 1500.0,
        "tiny_fastest_ms": 1000.0,
        "tiny_release_ms": 500.0,
        "tiny_window_ms": 2500.0,
        "tiny_overhead_ms": 1000.0,
        "tiny_engine_ms": 1400.0,
        "tiny_copy_ms": 500.0,
        "tiny_window_over_copy": 5.0,
    }


def test_engines_that_were_never_done_together_have_no_window_and_cost_no_other_figure() -> None:
    whole = Whole(2, size=10, partial=13)
    assert whole.figures("two") == {"two_bytes": 10, "two_engines": 2, "two_partial": 13, "two_window_ms": None}
    assert whole.line("135M") == "| 135M | 2 | every sync was partial |"


def test_turns_give_the_version_that_engines_do_not_have() -> None:
    turns = Turns()
    assert (turns.at, next(turns), next(turns), next(turns), turns.at) == ("v1", "v2", "v1", "v2", "v2")


async def test_orders_are_the_updates_that_were_answered_and_nothing_else() -> None:
    async def update(request: web.Request) -> web.Response:
        await asyncio.sleep(float(request.query["sec"]))
        return web.Response(status=int(request.query.get("status", "200")))

    app, orders = web.Application(), Orders()
    app.add_routes([web.post("/sync", update), web.post("/prepare", update)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with aiohttp.ClientSession(trace_configs=[orders.trace()]) as session:
            asked = ("sync?sec=0.05", "sync?sec=0.25", "sync?sec=0&status=409", "prepare?sec=0")
            answers = await asyncio.gather(*(session.post(f"{url}/{words}") for words in asked))
            assert [answer.status for answer in answers] == [200, 200, 409, 200]
    finally:
        await runner.cleanup()
    quick, slow = sorted(row.seconds for row in orders.take())
    assert (quick >= 0.05, slow >= 0.25) == (True, True)
    assert orders.take() == []
