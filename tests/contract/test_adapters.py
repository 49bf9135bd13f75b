"""Hot swap of LoRA adapters: real SGLang under the real sync agent in a pod, a real gateway in front, users all along.

The gateway runs here and hears the operator's word from the test; that the operator says it is for the e2e tests.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import torch

from openclaw_core import wire
from openclaw_core.config.policy_training import Lora, PolicyTraining
from openclaw_core.wire import AgentState, Prepared, Retain, Sample, Synced
from openclaw_engine.sglang import ADAPTERS_ROUTE
from openclaw_trainer import logprobs
from openclaw_trainer.batch import collate
from openclaw_trainer.policy import Policy
from tests.contract import engine_pod
from tests.contract.engine_pod import EnginePod
from tests.fakes import tiny_policy
from tests.fakes.engine import FakeEngine, Knobs
from tests.unit.gateway.running import Running, config, running

pytestmark = [pytest.mark.contract, pytest.mark.timeout(600)]

AGENT = {"Authorization": f"Bearer {engine_pod.AGENT_TOKEN}"}
LORA = {"rank": tiny_policy.RANK, "alpha": tiny_policy.ALPHA, "publish": "adapter"}
LONG = 700
"""Tokens of an answer that several swaps fall into."""
LIMIT = 5e-5
"""Largest difference of a logprob between engine and trainer; float32 on both sides."""


@pytest.fixture(scope="module")
def pod() -> Iterator[EnginePod]:
    """The container as the operator runs it, its target an adapter."""
    with engine_pod.namespace() as space:
        engine_pod.apply_agent_config(space, engine_pod.cpu_config(lora=LORA))
        with engine_pod.with_agent(space, target="v5") as made:
            yield made


@dataclass
class Site:
    """Agent, SGLang and gateway, and the users' tally."""

    pod: EnginePod
    session: aiohttp.ClientSession
    gateway: Running
    versions: dict[str, str]
    epoch: int = 0
    statuses: list[int] = field(default_factory=list)

    async def order(self, path: str, body: wire.Message) -> tuple[int, bytes]:
        async with self.session.post(self.pod.agent + path, data=body.model_dump_json(), headers=AGENT) as answer:
            return answer.status, await answer.read()

    async def state(self) -> AgentState:
        async with self.session.get(self.pod.agent + "/state", headers=AGENT) as answer:
            return AgentState.model_validate_json(await answer.read())

    async def load(self, name: str) -> Synced:
        """What the operator asks of the agent."""
        self.epoch += 1
        version = self.versions[name]
        prepared = Prepared.model_validate_json((await self.order("/prepare", wire.Prepare(version=version)))[1])
        assert prepared.ready, prepared
        sync = wire.Sync(epoch=self.epoch, version=version, deadline_sec=30)
        return Synced.model_validate_json((await self.order("/sync", sync))[1])

    async def switch(self, name: str) -> None:
        """What the operator says to gateways: no hold, only the version."""
        body = wire.Paused(epoch=self.epoch, lease_sec=0, serving_version=self.versions[name])
        status, _ = await self.gateway.internal("/internal/paused", body)
        assert status == 200

    async def swap(self, name: str) -> Synced:
        synced = await self.load(name)
        assert synced.ok, synced
        await self.switch(name)
        return synced

    async def retain(self, *names: str) -> None:
        await self.order("/retain", Retain(versions=[self.versions[name] for name in names]))

    async def users_of_adapters(self) -> dict[str, int]:
        async with self.session.get(self.pod.sglang + ADAPTERS_ROUTE) as answer:
            found: dict[str, int] = await answer.json()
            return found

    async def say(self, session: str, tokens: int, *, stream: bool = False, side: bool = False) -> Any:
        """One turn of a user; the reply, or the bytes of the stream. Its status is kept."""
        body = {
            "messages": [{"role": "user", "content": f"What is the capital of France? {session}"}],
            "temperature": 0.0,
            "max_tokens": tokens,
            "stream": stream,
        }
        url = f"{self.gateway.url}/v1/chat/completions"
        kind = "side" if side else "main"
        headers = {"X-Session-Id": session, "X-Turn-Type": kind, "Authorization": "Bearer user-key"}
        async with self.session.post(url, json=body, headers=headers) as answer:
            self.statuses.append(answer.status)
            return await answer.read() if stream else await answer.json()

    async def samples(self, count: int) -> dict[str, Sample]:
        """Recorded turns by session; each needs a next message first."""
        await self.gateway.judge()
        return {sample.session: sample for sample in (await self.gateway.lease(count)).samples}

    async def end(self, session: str, said: str) -> None:
        messages = [
            {"role": "user", "content": f"What is the capital of France? {session}"},
            {"role": "assistant", "content": said},
            {"role": "user", "content": "Thanks."},
        ]
        headers = {"X-Session-Id": session, "X-Session-Done": "1"}
        await self.gateway.post(messages, headers=headers, max_tokens=1)


@pytest.fixture
async def site(pod: EnginePod) -> AsyncIterator[Site]:
    address = pod.sglang.removeprefix("http://")
    learning = {"lora": LORA, "rollout_batch_size": 64}
    setup = config(policy_training=learning)
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=240)) as session,
        running(gateway=setup, engines=(address,)) as gateway,
    ):
        async with asyncio.timeout(60):
            while not gateway.parts.fleet.ready():
                gateway.parts.probes.wake()
                await asyncio.sleep(0.05)
        made = Site(pod, session, gateway, pod.versions())
        made.epoch = (await made.state()).highest_epoch
        yield made


async def test_engine_starts_with_the_adapter_of_its_target(site: Site) -> None:
    state = await site.state()
    assert (state.version, state.ready) == (site.versions["v5"], True)
    assert site.versions["v5"] in state.adapters
    assert site.versions["v5"] in await site.users_of_adapters()


async def test_swaps_under_load_refuse_nothing_pause_nothing_and_change_no_running_answer(site: Site) -> None:
    await site.swap("v5")
    alone = await site.say("stream-0", LONG, stream=True)
    going, stop = site.statuses, asyncio.Event()
    going.clear()

    async def user(number: int) -> None:
        turn = 0
        while not stop.is_set():
            # Side turns: nobody trains here, so main ones would come to the end of the backlog.
            await site.say(f"user-{number}-{turn}", 8, stream=turn % 2 == 0, side=True)
            turn += 1

    users = [asyncio.create_task(user(number)) for number in range(4)]
    streams = [asyncio.create_task(site.say("stream-0", LONG, stream=True))]
    await asyncio.sleep(1.0)
    for name in ("v6", "v7", "v8", "v5"):
        synced = await site.swap(name)
        assert synced.pause_sec == 0.0
        streams.append(asyncio.create_task(site.say("stream-0", LONG, stream=True)))
        await site.retain(name)
        await asyncio.sleep(1.5)
    stop.set()
    answers = await asyncio.gather(*streams)
    await asyncio.gather(*users)

    assert set(going) == {200} and len(going) > 20
    assert (await site.gateway.stats()).refused == {}
    assert _text(answers[0]) == _text(alone), "an answer that ran through the swaps is another one"
    assert _text(answers[4]) == _text(alone), "the same adapter, loaded again, answers otherwise"
    assert len({_text(answer) for answer in answers[:4]}) == 4, "four adapters answer in four ways"


async def test_turn_that_a_swap_fell_into_is_recorded_as_one_span_of_its_adapter(site: Site) -> None:
    await site.swap("v6")
    old = asyncio.create_task(site.say("old", 300))
    await asyncio.sleep(0.7)
    await site.swap("v7")
    new, ended = await site.say("new", 300), await old
    for session, reply in (("old", ended), ("new", new)):
        await site.end(session, reply["choices"][0]["message"]["content"])
    found = await site.samples(2)
    spans = {session: [(s.version, s.start, s.end) for s in sample.spans] for session, sample in found.items()}
    lengths = {session: len(sample.output_ids) for session, sample in found.items()}
    assert spans == {
        "old": [(site.versions["v6"], 0, lengths["old"])],
        "new": [(site.versions["v7"], 0, lengths["new"])],
    }


async def test_logprobs_of_an_adapter_are_the_trainers_own(site: Site, tmp_path: Path) -> None:
    await site.swap("v8")
    for number in range(3):
        reply = await site.say(f"s{number}", 48)
        await site.end(f"s{number}", reply["choices"][0]["message"]["content"])
    samples = list((await site.samples(3)).values())
    assert len(samples) == 3
    policy = _policy_with_adapter(tmp_path, seed=8)
    batch = collate(samples, [0.0] * 3, [0] * 3, policy.device)
    with torch.no_grad():
        scored = logprobs.forward(policy.model, batch)
    differences = (scored.logprobs_B_T - batch.rollout_B_T).abs() * batch.mask_B_T
    assert differences.max() < LIMIT
    with torch.no_grad(), policy.reference() as base:
        without = logprobs.forward(base, batch)
    assert ((without.logprobs_B_T - batch.rollout_B_T).abs() * batch.mask_B_T).max() > 0.1, "the adapter did nothing"


async def test_old_adapter_is_unloaded_after_its_last_stream_and_not_before(site: Site) -> None:
    await site.swap("v5")
    old = asyncio.create_task(site.say("long", LONG, stream=True))
    await asyncio.sleep(0.7)
    await site.swap("v6")
    await site.retain("v6")
    await asyncio.sleep(2.5)
    if not old.done():
        assert (await site.users_of_adapters()).get(site.versions["v5"]) == 1
    await old
    async with asyncio.timeout(20):
        while site.versions["v5"] in await site.users_of_adapters():  # noqa: ASYNC110 - it lies behind HTTP
            await asyncio.sleep(0.2)
    assert (await site.state()).version == site.versions["v6"]


async def test_whole_weights_are_refused_and_the_adapter_goes_on_serving(site: Site) -> None:
    site.epoch += 1
    sync = wire.Sync(epoch=site.epoch, version=site.versions["v1"], deadline_sec=10)
    answer = Synced.model_validate_json((await site.order("/sync", sync))[1])
    assert not answer.ok and "holds whole weights" in str(answer.error)
    assert (await site.say("after", 4))["choices"][0]["message"]["role"] == "assistant"


@pytest.mark.parametrize("kind", ["fake", "real"])
async def test_engine_lists_its_adapters_and_their_users_and_refuses_a_name_it_never_had(
    kind: str, request: pytest.FixtureRequest
) -> None:
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        if kind == "fake":
            fake = await stack.enter_async_context(FakeEngine(reply="x" * 60, knobs=Knobs(token_delay_sec=0.01)))
            url, name = fake.url, "5-0a1b2c3d"
            fake.adapters[name] = "/weights/v5"
        else:
            url = request.getfixturevalue("pod").sglang
            name = next(iter(await _users(session, url)))
        async with session.get(f"{url}/v1/models") as answer:
            cards = (await answer.json())["data"]
        assert [card["parent"] is None for card in cards] == [True] + [False] * (len(cards) - 1)
        assert name in [card["id"] for card in cards[1:]]
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 400, "lora_path": name}
        running = asyncio.create_task(_post(session, url, body))
        async with asyncio.timeout(10):
            while (await _users(session, url))[name] != 1:  # noqa: ASYNC110 - it lies behind HTTP
                await asyncio.sleep(0.01)
        assert (await running)[0] == 200
        assert (await _users(session, url))[name] == 0
        status, text = await _post(session, url, body | {"lora_path": "99-0a1b2c3d"})
        assert status == 400 and "LoRA adapter that has never been loaded" in text


async def _post(session: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> tuple[int, str]:
    async with session.post(f"{url}/v1/chat/completions", json=body | {"ignore_eos": True}) as answer:
        return answer.status, await answer.text()


async def _users(session: aiohttp.ClientSession, url: str) -> dict[str, int]:
    async with session.get(url + ADAPTERS_ROUTE) as answer:
        found: dict[str, int] = await answer.json()
        return found


def _text(stream: bytes) -> str:
    events = [orjson.loads(line[6:]) for line in stream.split(b"\n") if line.startswith(b"data: {")]
    deltas = [choice["delta"] for event in events for choice in event["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


def _policy_with_adapter(root: Path, seed: int) -> Policy:
    """The trainer's policy with the same base and the same adapter as the pod made from the same seeds."""
    tiny_policy.write_model(root / "base", 0)
    policy = Policy.load(root / "base", PolicyTraining(device="cpu", dtype="float32", lora=Lora.model_validate(LORA)))
    wanted = tiny_policy.adapter_weights(seed)
    with torch.no_grad():
        for name, parameter in policy.trainable().items():
            parameter.copy_(wanted[name.replace(".default.", ".")])
    return policy
