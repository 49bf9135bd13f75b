"""kill -9 of a gateway under load: every turn is accounted for, and the next start knows what was lost."""

import asyncio
import contextlib
import os
import random
import signal
import socket
import sys

import aiohttp

from openclaw_core import names, wire
from openclaw_gateway import settings
from openclaw_gateway.store import stats
from openclaw_gateway.store.databases import Sqlite
from openclaw_gateway.store.stats import difference
from openclaw_gateway.store.store import FILE_NAME, Store
from openclaw_gateway.store.transaction import Policy, Transaction
from tests.fakes.engine import FakeEngine, Knobs
from tests.unit.gateway.running import TOKEN, config, conversation

USERS = 8
SETUP = {"policy_training": {"rollout_batch_size": 64, "min_batch": 4}, "queue": {"max_size": 512}}


def free_ports():
    """Two of those that no outgoing connection of another test is given before the process binds them."""
    found = set()
    while len(found) < 2:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", random.randrange(20_000, 30_000)))
            found.add(probe.getsockname()[1])
    return tuple(found)


@contextlib.asynccontextmanager
async def process(tmp_path, engine):
    """A gateway process that is ready; (process, public URL, internal URL). Killed at the end."""
    public, internal = free_ports()
    file = tmp_path / "config.json"
    setup = config(policy_serving={"host": "127.0.0.1", "port": public}, **SETUP)
    file.write_text(setup.model_dump_json(by_alias=True))
    environ = os.environ | {
        names.ENV_CONFIG: str(file),
        names.ENV_GATEWAY_TOKEN: TOKEN,
        settings.ENV_KUBERNETES: "off",
        settings.ENV_ENGINES: engine.url.removeprefix("http://"),
        settings.ENV_EXPERIENCE_DIR: str(tmp_path),
        settings.ENV_INTERNAL_PORT: str(internal),
    }
    child = await asyncio.create_subprocess_exec(sys.executable, "-m", "openclaw_gateway", env=environ)
    try:
        await ready(f"http://127.0.0.1:{public}/readyz")
        yield child, f"http://127.0.0.1:{public}", f"http://127.0.0.1:{internal}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()


async def ready(url):
    async with asyncio.timeout(30), aiohttp.ClientSession() as http:
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with http.get(url) as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.05)


class Load:
    """Users, a judge and a trainer until they are told to stop; what the clients saw."""

    def __init__(self, url, internal_url, epoch):
        self.url, self.internal_url, self.epoch = url, internal_url, epoch
        self.answered = 0
        self.acked = []

    async def user(self, http, name):
        for number in range(1000):
            session, stream = f"{name}-{self.epoch}-{number}", number % 2 == 0
            if await self.turn(http, conversation("Hi"), session, stream):
                await self.turn(http, conversation("Hi", "Hello", "thanks"), session, stream, done=number % 3 == 0)

    async def turn(self, http, messages, session, stream, done=False):
        body = {"messages": messages, "session_id": session, "stream": stream, "session_done": done}
        async with http.post(f"{self.url}/v1/chat/completions", json=body) as response:
            data = await response.read()
            whole = response.status == 200 and (not stream or data.endswith(b"data: [DONE]\n\n"))
            self.answered += whole
            return whole

    async def judge(self, http):
        while True:
            lease = wire.LeaseTurns(worker="w", max_turns=4, lease_sec=60, wait_sec=1)
            for turn in (await self.post(http, "turns/lease", lease))["turns"]:
                score = wire.ScoreTurn(id=turn["id"], lease=turn["lease"], score=1, votes=[1])
                await self.post(http, "turns/score", score)

    async def trainer(self, http):
        while True:
            wanted = wire.LeaseSamples(
                trainer_epoch=self.epoch, batch=4, min_batch=4, batch_wait_sec=9, lease_sec=60, wait_sec=1
            )
            if ids := [sample["id"] for sample in (await self.post(http, "samples/lease", wanted))["samples"]]:
                ack = wire.AckSamples(trainer_epoch=self.epoch, ids=ids, version="1-0a1b2c3d")
                self.acked += (await self.post(http, "samples/ack", ack))["ids"]

    async def post(self, http, path, body):
        headers = {"Authorization": f"Bearer {TOKEN}"}
        url = f"{self.internal_url}/internal/{path}"
        async with http.post(url, json=body.model_dump(), headers=headers) as response:
            return await response.json()

    async def run(self):
        async with aiohttp.ClientSession() as http:
            tasks = [self.user(http, f"u{n}") for n in range(USERS)] + [self.judge(http), self.trainer(http)]
            await asyncio.gather(*(self.until_it_dies(task) for task in tasks))

    async def until_it_dies(self, task):
        with contextlib.suppress(aiohttp.ClientError):
            await task


def read(tmp_path, operation):
    engine = Sqlite(tmp_path / FILE_NAME).engine
    with engine.begin() as connection:
        tx = Transaction(connection, 0.0)
        result = operation(tx)
        tx.flush()
    engine.dispose()
    return result


async def test_identity_holds_after_kill_9_at_any_moment(tmp_path):
    policy = Policy.of(config(**SETUP))
    async with (
        FakeEngine(reply="Hello", knobs=Knobs(token_delay_sec=0.002)) as engine,
        process(tmp_path, engine) as (child, url, internal_url),
    ):
        load = Load(url, internal_url, epoch=1)
        asyncio.get_running_loop().call_later(random.uniform(0.4, 1.0), child.send_signal, signal.SIGKILL)
        await load.run()
        assert await child.wait() == -signal.SIGKILL
    shown = read(tmp_path, lambda tx: stats.stats(tx, policy, {}))
    assert difference(shown) == (0, 0), shown
    # Committed before the last frame: the store knows at least what the clients saw.
    assert shown.served >= load.answered > 0
    assert shown.trained >= len(load.acked)
    assert len(load.acked) == len(set(load.acked)), "a sample was acknowledged twice"

    store = await Store.open(Sqlite(tmp_path / FILE_NAME), policy, "the next one")
    try:
        shown = await store.stats({})
    finally:
        await store.close()
    assert difference(shown) == (0, 0), shown
    assert shown.waiting.generating == 0
    lost = sum(shown.dropped.get(reason, 0) for reason in ("gateway_lost", "client_gone"))
    # At most one answer of each user was committed and then not sent.
    assert load.answered <= shown.served - lost <= load.answered + USERS
