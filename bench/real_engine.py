"""A weight sync on real SGLang: its window beside the mere copying of the bytes, and swaps that refuse nobody.

    operator's own loop ──▶ pod of the engine image: sync agent, SGLang     (whole weights: tiny and 135 million)
                        └─▶ stand-in gateway, which notes the window        (idle, then under users: `openclaw_rl`)

    operator's own loop ──▶ pod with a LoRA adapter     ◀── real gateway ◀── clients without retries
                        └─▶ relay to that gateway's internal port

Copy limit: reading the version's weight files, which lie in the page cache, into memory that is there already, in the
same pod and between the syncs. Needs the cluster and the images of `make cluster-up images`.
"""

import asyncio
import itertools
import json
import statistics
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from bench import openclaw_rl, stand_ins
from openclaw_core import kube, names
from openclaw_core.config.spec import TrainingSpec
from openclaw_core.kube import Kube
from openclaw_core.leases import Published
from openclaw_core.status import LastSync
from openclaw_core.versions import WeightVersion
from openclaw_operator.events import Recorder
from openclaw_operator.training import Training
from openclaw_operator.weightsync import model as m
from openclaw_operator.weightsync.edge import SyncLoop, Tokens
from tests.contract import engine_pod
from tests.contract.engine_pod import EnginePod
from tests.contract.gateway import gateway_process
from tests.fakes import tiny_policy

LEASES = "coordination.k8s.io/v1"
NAME = "bench"
GATEWAY = "127.0.9.101"
LORA = {"rank": tiny_policy.RANK, "alpha": tiny_policy.ALPHA, "publish": "adapter"}
CLIENTS = 4
BETWEEN_SEC = 1.0
STEPS = 5
"""Of each rhythm, beside OpenClaw-RL's."""
READ = """
import json, os, sys, time
paths = [os.path.join(sys.argv[1], name) for name in os.listdir(sys.argv[1]) if name.endswith(".safetensors")]
room = [bytearray(os.path.getsize(path)) for path in paths]
took = []
for _ in range(3):
    began = time.perf_counter()
    for path, buffer in zip(paths, room):
        with open(path, "rb", buffering=0) as file:
            view = memoryview(buffer)
            while view:
                view = view[file.readinto(view):]
    took.append(time.perf_counter() - began)
print(json.dumps([sum(map(len, room)), sorted(took)[1]]))
"""


@dataclass
class Whole:
    """Syncs of whole weights. Seconds; one value for each sync."""

    size: int = 0
    windows: list[float] = field(default_factory=list)
    engines: list[float] = field(default_factory=list)
    copies: list[float] = field(default_factory=list)
    replayed: Mapping[str, float] = field(default_factory=dict)
    """Beside OpenClaw-RL's rhythm."""

    def figures(self, shape: str) -> dict[str, object]:
        window, engine, copy = (statistics.median(values) for values in (self.windows, self.engines, self.copies))
        return {
            f"{shape}_bytes": self.size,
            f"{shape}_window_ms": round(window * 1000, 1),
            f"{shape}_engine_ms": round(engine * 1000, 1),
            f"{shape}_copy_ms": round(copy * 1000, 1),
            f"{shape}_window_over_copy": round(window / copy, 2),
        }


async def measure(api: Kube, kubeconfig: dict[str, Any], rounds: int) -> dict[str, object]:
    """Figures of the two sizes and of the adapters."""
    found: dict[str, object] = {}
    with engine_pod.namespace() as space:
        for shape in ("tiny", "135M"):
            engine_pod.apply_agent_config(space, engine_pod.cpu_config())
            with engine_pod.with_agent(space, "v1", shape) as pod:
                whole = await _whole(api, kubeconfig, pod, rounds, replayed=STEPS if shape == "135M" else 0)
            found |= whole.figures(shape) | dict(whole.replayed)
        engine_pod.apply_agent_config(space, engine_pod.cpu_config(lora=LORA))
        with engine_pod.with_agent(space, "v5") as pod:
            found |= await _adapters(api, pod, rounds)
    return found | {"window_over_copy": found["135M_window_over_copy"]}


# ---------------------------------------------------------------- whole weights


async def _whole(api: Kube, kubeconfig: dict[str, Any], pod: EnginePod, rounds: int, replayed: int) -> Whole:
    found, versions = Whole(), pod.versions()
    watching = stand_ins.Gateways((GATEWAY,), kubeconfig, pod.space, names.weight_sync_lease(NAME))
    await _lease(api, pod.space)
    with stand_ins.process(watching) as gateway:
        async with _operator(api, pod, "bench", {}) as sync:

            async def exchange(version: str) -> LastSync:
                return await sync(versions[version])

            async def timed(version: str) -> tuple[LastSync, float]:
                last = await exchange(version)
                await asyncio.sleep(BETWEEN_SEC)
                return last, max(row.seconds for row in gateway.rows() if row.epoch == last.epoch)

            async def window(version: str) -> float:
                return (await timed(version))[1]

            turns = itertools.cycle(("v2", "v1"))
            for number, version in zip(range(rounds + 1), turns, strict=False):
                last, seconds = await timed(version)
                size, copied = json.loads(pod.execute("python3", "-c", READ, f"{names.WEIGHTS_DIR}/{version}"))
                if number:  # the first opens connections and fills caches
                    found.size = size
                    found.windows.append(seconds)
                    found.engines.append((last.engine_ms or 0.0) / 1000)
                    found.copies.append(copied)
            if replayed:
                found.replayed = await openclaw_rl.measure(pod.sglang, exchange, window, turns, replayed)
    return found


async def _lease(api: Kube, space: str) -> None:
    """The sync's Lease, new."""
    collection, name = kube.path(LEASES, "leases", space), names.weight_sync_lease(NAME)
    if any(item["metadata"]["name"] == name for item in (await api.list(collection))["items"]):
        await api.delete(f"{collection}/{name}")
    await api.create(collection, {"metadata": {"name": name}})


Publish = Callable[[str], Awaitable[LastSync]]


@asynccontextmanager
async def _operator(api: Kube, pod: EnginePod, gateway_token: str, learning: dict[str, Any]) -> AsyncIterator[Publish]:
    """The operator's loop over this one engine; what is yielded publishes a version and returns once it is served."""
    spec: dict[str, Any] = {"model": {"path": "base"}, "api": {"baseUrl": "http://judge/v1"}, "judge": {"model": "m"}}
    spec["policyTraining"] = learning
    training = Training(pod.space, NAME, "00000000-0000-0000-0000-000000000000", 1, TrainingSpec.model_validate(spec))
    address = engine_pod.kubectl("get", "pod", pod.name, "-n", pod.space, "-o", "jsonpath={.status.podIP}").strip()
    tokens = Tokens(gateway=gateway_token, agent=engine_pod.AGENT_TOKEN)

    def world(version: str | None) -> m.World:
        return m.World(
            engines=(m.EnginePod(pod.name, pod.name, address, True),),
            gateways=(m.GatewayPod(GATEWAY, GATEWAY, GATEWAY, True),),
            published=Published(version=WeightVersion.parse(version) if version else None),
            pinned=None,
            pause_timeout_sec=120,
        )

    async with aiohttp.ClientSession() as session:
        loop = SyncLoop(
            training, identity="bench", kube=api, session=session, recorder=Recorder(api), changed=lambda: None
        )
        running = asyncio.create_task(loop.run())

        async def sync(version: str) -> LastSync:
            before = loop.view.last_sync
            loop.update(training, world(version), tokens)
            async with asyncio.timeout(300):
                while (last := loop.view.last_sync) is None or last == before or last.version != version:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            if last.result != "Succeeded":
                raise RuntimeError(f"the sync to {version} ended so: {last}")
            return last

        try:
            yield sync
        finally:
            running.cancel()
            await asyncio.wait([running])


# ---------------------------------------------------------------- adapters


async def _adapters(api: Kube, pod: EnginePod, rounds: int) -> dict[str, object]:
    """Swap adapters under clients that take every status as it comes."""
    await _lease(api, pod.space)
    statuses: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        learning = {"lora": LORA, "rolloutBatchSize": 64}
        async with (
            gateway_process.gateway_process(Path(folder), [pod.sglang], policyTraining=learning) as gateway,
            _relay(gateway),
            _operator(api, pod, gateway_process.TOKEN, {"lora": LORA}) as sync,
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as http,
        ):
            versions = pod.versions()
            await sync(versions["v8"])
            users = [asyncio.create_task(_user(http, gateway.url, statuses, number)) for number in range(CLIENTS)]
            pauses = []
            for number in range(rounds):
                pauses.append((await sync(versions[f"v{5 + number % 4}"])).pause_ms)
                await asyncio.sleep(BETWEEN_SEC)
            for user in users:
                user.cancel()
            await asyncio.wait(users)
    return {
        "lora_swaps": rounds,
        "lora_requests": len(statuses),
        "lora_503": statuses.count(503),
        "lora_other_failures": sum(status not in (200, 503) for status in statuses),
        "lora_pause_ms_max": max(pauses),
    }


async def _user(http: aiohttp.ClientSession, url: str, statuses: list[int], number: int) -> None:
    """One request after another, every second one streamed."""
    turn = 0
    while True:
        body = {
            "model": "policy",
            "messages": [{"role": "user", "content": f"What is the capital of France? {number} {turn}"}],
            "max_tokens": 24,
            "stream": turn % 2 == 0,
        }
        headers = {"Authorization": f"Bearer {gateway_process.KEY}", "X-Openclaw-No-Train": "1"}
        async with http.post(f"{url}/v1/chat/completions", json=body, headers=headers) as answer:
            statuses.append(answer.status)
            await answer.read()
        turn += 1


@asynccontextmanager
async def _relay(gateway: gateway_process.GatewayProcess) -> AsyncIterator[None]:
    """Where the operator looks for the gateway: passes its words on."""

    async def paused(request: web.Request) -> web.Response:
        return web.json_response(await gateway.internal("/internal/paused", await request.json()))

    app = web.Application()
    app.add_routes([web.post("/internal/paused", paused)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, GATEWAY, names.PORT_GATEWAY_INTERNAL).start()
        yield
    finally:
        await runner.cleanup()
