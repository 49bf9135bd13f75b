"""What a request waits for, in virtual time: silent engines, clients that read nothing, quiet streams, a full house."""

import asyncio
import contextlib
import json

import pytest

from openclaw_gateway import errors
from openclaw_gateway.anthropic.face import MessagesFace
from openclaw_gateway.exchanges import ClientLeftError, ClientLostError, ClientStuckError, Exchange, Exchanges, Limits
from openclaw_gateway.faces import ChatFace

pytestmark = pytest.mark.looptime
LIMITS = Limits(first_token_sec=600, idle_sec=300, client_sec=60, ping_sec=12, most=2)


class Client:
    """What an ASGI server is given; `stuck`: it takes nothing more."""

    def __init__(self):
        self.status, self.data, self.complete = None, b"", False
        self.starts = 0
        self.stuck = False

    async def __call__(self, message):
        if self.stuck:
            await asyncio.Event().wait()
        assert not self.complete, "a complete response is over"
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.starts += 1
        else:
            self.data += message["body"]
            self.complete = not message["more_body"]


class Served:
    """One exchange under the loop's eyes; `engine` is what its task does."""

    def __init__(self, engine, *, face=None, streams=True, paused=lambda: False):
        clock = asyncio.get_running_loop().time
        self.all = Exchanges(LIMITS, paused=paused, clock=clock)
        self.client = Client()
        self.exchange = Exchange(face or ChatFace(), "r", {}, self.client, streams=streams, now=clock())
        self.exchange.task = self.work = asyncio.create_task(self._run(engine))
        self.all.add(self.exchange)
        self.error = None

    async def _run(self, engine):
        try:
            await engine(self)
        except asyncio.CancelledError:
            self.error = self.exchange.ended()
            if self.error is None:
                raise
            if not isinstance(self.error, ClientLostError):
                await self.exchange.fail(self.error, self.all.now)

    async def send(self, events):
        await self.exchange.stream(events, self.all.now)


@contextlib.asynccontextmanager
async def served(engine, **options):
    found = Served(engine, **options)
    watch = asyncio.create_task(found.all.watch())
    try:
        yield found
    finally:
        for task in (watch, found.work):
            task.cancel()
        await asyncio.wait((watch, found.work))


async def silent(_):
    await asyncio.Event().wait()


async def says_one_thing(served):
    await served.send(b"data: {}\n\n")
    await asyncio.Event().wait()


async def test_engine_that_never_answers_is_a_504_after_the_first_limit():
    async with served(silent, streams=False) as found:
        await asyncio.sleep(599)
        assert not found.work.done()
        await asyncio.sleep(4)
        assert found.work.done()
        assert found.client.status == 504 and found.client.complete
        assert json.loads(found.client.data)["error"]["code"] == "upstream_timeout"


async def test_stream_that_stops_in_the_middle_ends_with_an_error_frame_and_stays_open_ended():
    async with served(says_one_thing) as found:
        await asyncio.sleep(304)
        assert found.work.done() and not found.client.complete
        assert found.client.data.startswith(b"data: {}\n\n")
        last = found.client.data.rstrip().rpartition(b"data: ")[2]
        assert json.loads(last)["error"]["code"] == "upstream_timeout"


async def test_engine_paused_by_a_weight_sync_is_not_silent():
    on = True
    async with served(says_one_thing, paused=lambda: on) as found:
        await asyncio.sleep(2000)
        assert not found.work.done()
        on = False
        await asyncio.sleep(304)
        assert found.work.done()


@pytest.mark.parametrize(
    ("face", "ping"),
    [(ChatFace(), b": ping\n\n"), (MessagesFace(), b'event: ping\ndata: {"type":"ping"}\n\n')],
)
async def test_quiet_stream_gets_an_event_that_says_nothing_before_and_between_tokens(face, ping):
    async with served(silent, face=face) as found:
        await asyncio.sleep(10)
        assert found.client.status is None
        await asyncio.sleep(30)
        assert found.client.status == 200
        assert 2 <= found.client.data.count(ping) <= 3
        assert found.client.data.replace(ping, b"") == b""


async def test_error_after_such_an_event_is_a_frame_because_the_status_is_gone():
    async def fails_late(served):
        await asyncio.sleep(20)
        await served.exchange.fail(errors.bad_gateway("boom"), served.all.now)

    async with served(fails_late) as found:
        await asyncio.sleep(21)
        assert found.client.status == 200 and not found.client.complete
        assert found.client.data.endswith(errors.bad_gateway("boom").frame())


async def test_non_stream_gets_nothing_before_its_answer():
    async with served(silent, streams=False) as found:
        await asyncio.sleep(100)
        assert found.client.status is None


async def test_client_that_reads_nothing_is_given_up_and_not_pinged():
    async def talks(served):
        await served.send(b"data: 1\n\n")
        served.client.stuck = True
        await served.send(b"data: 2\n\n")

    async with served(talks) as found:
        await asyncio.sleep(50)
        assert not found.work.done()
        await asyncio.sleep(15)
        assert isinstance(found.error, ClientStuckError)
        assert found.client.data == b"data: 1\n\n"


async def test_ping_to_a_client_that_reads_nothing_is_bounded_too():
    async with served(silent) as found:
        found.client.stuck = True
        await asyncio.sleep(12 + 60 + 5)
        assert isinstance(found.error, ClientStuckError)


async def test_stop_of_the_process_ends_what_is_left_with_an_error():
    async with served(says_one_thing) as found:
        await asyncio.sleep(1)
        found.all.end_all(errors.stopping)
        await asyncio.sleep(1)
        assert found.work.done()
        assert b'"code":"stopping"' in found.client.data and not found.client.complete


async def test_no_more_requests_than_there_is_room_for():
    exchanges = Exchanges(LIMITS, paused=lambda: False, clock=asyncio.get_running_loop().time)
    exchanges.enter()
    exchanges.enter()
    with pytest.raises(errors.ApiError) as refused:
        exchanges.enter()
    assert (refused.value.status, refused.value.code) == (503, "overloaded")
    exchanges.leave()
    exchanges.enter()
    assert exchanges.open == 2


@pytest.mark.parametrize("stuck_sec", [0.0, 0.5])
async def test_failure_in_the_moment_of_a_ping_is_one_answer(stuck_sec):
    """The loop has decided to ping when the engine fails: what the client gets must still be one response."""

    async def fails(served):
        await asyncio.sleep(1)
        served.exchange.look(LIMITS, 20.0, paused=False)
        await asyncio.sleep(stuck_sec)
        await served.exchange.fail(errors.bad_gateway("the engine is gone"), 20.0)

    async with served(fails) as found:
        await asyncio.sleep(3)
        assert found.work.done() and found.work.exception() is None
        assert found.client.starts == 1
        assert b"the engine is gone" in found.client.data


async def test_client_that_leaves_ends_the_work():
    async with served(silent) as found:
        await asyncio.sleep(1)
        found.exchange.gone()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert isinstance(found.error, ClientLeftError)


async def test_cancellation_by_somebody_else_is_not_taken_for_a_verdict():
    async with served(silent) as found:
        await asyncio.sleep(1)
        found.work.cancel()
        await asyncio.wait((found.work,))
        assert found.work.cancelled() and found.client.status is None
