"""A weight sync on real SGLang: its window beside the mere copying of the bytes, and swaps that refuse nobody.

    operator's own loop ──▶ a pod of the engine image, then two: agent, SGLang  (whole weights: tiny and 135 million)
                        └─▶ stand-in gateway, which notes the window    (idle; one engine under users: `openclaw_rl`)

    operator's own loop ──▶ pod with a LoRA adapter     ◀── real gateway ◀── clients without retries
                        └─▶ relay to that gateway's internal port

Copy limit: reading the version's weight files, which lie in the page cache, into memory that is there already, in the
same pod and between the syncs. When an engine updates is seen on the operator's own connections: from its order's
first byte to the answer's. Two engines on one machine share its cores, and a sync that ended before the slower of them
was done (`Partial`) is counted but not among the figures. Needs the cluster and the images of `make cluster-up images`.
"""

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from bench import openclaw_rl, stand_ins, sync_parts
from bench.operator_loop import GATEWAY, NAME, new_lease, operator_loop
from bench.orders import Orders
from bench.stand_ins import Row
from bench.sync_parts import Sync
from bench.users import Asked, asking
from openclaw_core import names
from openclaw_core.kube import Kube
from openclaw_core.status import LastSync
from tests.contract import engine_pod
from tests.contract.engine_pod import EnginePod
from tests.contract.gateway import gateway_process
from tests.fakes import tiny_policy

LORA = {"rank": tiny_policy.RANK, "alpha": tiny_policy.ALPHA, "publish": "adapter"}
CLIENTS = 4
BETWEEN_SEC = 1.0
FIRST, OTHER = "v1", "v2"
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

    many: int = 1
    """Engines."""
    size: int = 0
    partial: int = 0
    """Syncs that did not wait for a straggler; no other value is of them."""
    syncs: list[Sync] = field(default_factory=list)
    engines: list[float] = field(default_factory=list)
    """The slowest one's update, as it says itself."""
    copies: list[float] = field(default_factory=list)
    replayed: Mapping[str, float] = field(default_factory=dict)
    """Beside OpenClaw-RL's rhythm."""

    def figures(self, name: str) -> dict[str, object]:
        counts: dict[str, object] = {
            f"{name}_bytes": self.size,
            f"{name}_engines": self.many,
            f"{name}_partial": self.partial,
        }
        if not self.syncs:
            return counts | {f"{name}_window_ms": None}
        parts = sync_parts.medians(self.syncs)
        engine, copy = (statistics.median(values) * 1000 for values in (self.engines, self.copies))
        return counts | {
            **{f"{name}_{part}_ms": round(milliseconds, 1) for part, milliseconds in parts.items()},
            f"{name}_engine_ms": round(engine, 1),
            f"{name}_copy_ms": round(copy, 1),
            f"{name}_window_over_copy": round(parts["window"] / copy, 2),
        }

    def line(self, shape: str) -> str:
        if not self.syncs:
            return f"| {shape} | {self.many} | every sync was partial |"
        return sync_parts.line((shape, self.many), self.syncs, self.copies)


async def measure(api: Kube, kubeconfig: dict[str, Any], rounds: int) -> tuple[dict[str, object], str]:
    """Figures of the two sizes and of the adapters; and the windows' parts, as a table."""
    found: dict[str, object] = {}
    lines = [sync_parts.head(("model", "engines"), "copy")]
    with engine_pod.namespace() as space:
        for shape in ("tiny", "135M"):
            engine_pod.apply_agent_config(space, engine_pod.cpu_config())
            await new_lease(api, space)
            with engine_pod.with_agent(space, FIRST, shape) as pod:
                one = await _whole(api, kubeconfig, [pod], rounds, replayed=STEPS if shape == "135M" else 0)
                with engine_pod.with_agent(space, FIRST, shape, "engine-2") as second:
                    two = await _whole(api, kubeconfig, [pod, second], rounds)
            found |= one.figures(shape) | dict(one.replayed) | two.figures(f"{shape}_two_engines")
            lines += [one.line(shape), two.line(shape)]
        engine_pod.apply_agent_config(space, engine_pod.cpu_config(lora=LORA))
        with engine_pod.with_agent(space, "v5") as pod:
            found |= await _adapters(api, pod, rounds)
    return found | {"window_over_copy": found["135M_window_over_copy"]}, "\n".join(lines)


# ---------------------------------------------------------------- whole weights


async def _whole(
    api: Kube, kubeconfig: dict[str, Any], pods: Sequence[EnginePod], rounds: int, replayed: int = 0
) -> Whole:
    """Exchange two versions in turn; all pods have FIRST before and afterwards."""
    found, versions, orders = Whole(len(pods)), pods[0].versions(), Orders()
    watching = stand_ins.Gateways((GATEWAY,), kubeconfig, pods[0].space, names.weight_sync_lease(NAME))
    with stand_ins.process(watching) as gateway:
        async with operator_loop(api, pods, "bench", {}, orders) as sync:

            async def exchange(version: str) -> LastSync:
                return await sync(versions[version])

            async def timed(version: str) -> tuple[LastSync, list[Row], Sync | None]:
                """The gateway's window, and the parts of a sync that was whole."""
                orders.take()
                published = time.monotonic()
                last = await exchange(version)
                await asyncio.sleep(BETWEEN_SEC)
                windows, updates = [row for row in gateway.rows() if row.epoch == last.epoch], orders.take()
                return last, windows, Sync.of(published, windows, updates) if last.result == "Succeeded" else None

            async def window(version: str) -> float:
                return max(row.seconds for row in (await timed(version))[1])

            turns = Turns()
            for number in range(rounds + 1):
                version = next(turns)
                last, _, parts = await timed(version)
                size, copied = json.loads(pods[0].execute("python3", "-c", READ, f"{names.WEIGHTS_DIR}/{version}"))
                found.size, found.partial = size, found.partial + (parts is None)
                if number and parts is not None:  # the first opens connections and fills caches
                    found.syncs.append(parts)
                    found.engines.append((last.engine_ms or 0.0) / 1000)
                    found.copies.append(copied)
            if replayed:
                found.replayed = await openclaw_rl.measure(pods[0].sglang, exchange, window, turns, replayed)
            if turns.at != FIRST:
                await exchange(next(turns))
    return found


class Turns(Iterator[str]):
    """The other version each time; `at`: the one given last."""

    def __init__(self) -> None:
        self.at = FIRST

    def __next__(self) -> str:
        self.at = OTHER if self.at == FIRST else FIRST
        return self.at


# ---------------------------------------------------------------- adapters


async def _adapters(api: Kube, pod: EnginePod, rounds: int) -> dict[str, object]:
    """Swap adapters under clients that take every status as it comes."""
    await new_lease(api, pod.space)
    asked = Asked()
    with tempfile.TemporaryDirectory() as folder:
        learning = {"lora": LORA, "rolloutBatchSize": 64}
        async with (
            gateway_process.gateway_process(Path(folder), [pod.sglang], policyTraining=learning) as gateway,
            _relay(gateway),
            operator_loop(api, [pod], gateway_process.TOKEN, {"lora": LORA}, Orders()) as sync,
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as http,
        ):
            versions = pod.versions()
            await sync(versions["v8"])
            pauses = []
            async with asking(*(_user(http, gateway.url, asked, number) for number in range(CLIENTS))):
                for number in range(rounds):
                    pauses.append((await sync(versions[f"v{5 + number % 4}"])).pause_ms)
                    await asyncio.sleep(BETWEEN_SEC)
    return {
        "lora_swaps": rounds,
        "lora_requests": asked.requests,
        "lora_503": asked.failures["503"],
        "lora_other_failures": asked.failures.total() - asked.failures["503"],
        "lora_failures_by_kind": dict(asked.failures),
        "lora_pause_ms_max": max(pauses),
    }


async def _user(http: aiohttp.ClientSession, url: str, asked: Asked, number: int) -> None:
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
        asked.requests += 1
        try:
            async with http.post(f"{url}/v1/chat/completions", json=body, headers=headers) as answer:
                if answer.status != 200:
                    asked.failures[str(answer.status)] += 1
                await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            asked.failures[type(error).__name__] += 1
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
