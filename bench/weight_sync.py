"""Overhead of a weight sync on a real API server: `python -m bench.weight_sync [--gateways 4] [--engines 8]`.

The operator's own loop runs here against stand-in agents and gateways on loopback addresses; Lease and events live in
a fresh namespace. A window is what a gateway sees: from the first word of the hold (direct post or Lease watch) to the
first word of its release. Overhead = the longest window of a sync minus the slowest engine's own update. Beside it, in
the same run: the time from one Lease patch to the watch event of it. The last line is JSON.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

from examples.quickstart.commands import Cluster
from openclaw_core import kube, names
from openclaw_core.config.spec import TrainingSpec
from openclaw_core.kube import Kube
from openclaw_core.leases import Published, parse_weight_sync
from openclaw_core.versions import BASE, WeightVersion
from openclaw_core.wire import AgentState, Paused, PausedAck, Prepare, Prepared, Sync, Synced
from openclaw_operator.events import Recorder
from openclaw_operator.training import Training
from openclaw_operator.weightsync import model as m
from openclaw_operator.weightsync.edge import SyncLoop, Tokens

LEASES = "coordination.k8s.io/v1"
TOKENS = Tokens(gateway="bench", agent="bench")
NAME = "bench"
ENGINE_SEC = 0.05


@dataclass
class Agent:
    """A sync agent whose engine takes ENGINE_SEC."""

    ip: str
    version: str = str(BASE)
    highest: int = 0
    took: list[float] = field(default_factory=list)

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/state", self.state), web.post("/prepare", self.prepare), web.post("/sync", self.sync)]

    async def state(self, _: web.Request) -> web.Response:
        state = AgentState(
            version=self.version,
            target=None,
            ready=True,
            paused=False,
            highest_epoch=self.highest,
            phase="serving",
        )
        return _json(state)

    async def prepare(self, request: web.Request) -> web.Response:
        return _json(Prepared(version=Prepare.model_validate_json(await request.read()).version, ready=True))

    async def sync(self, request: web.Request) -> web.Response:
        asked = Sync.model_validate_json(await request.read())
        began = time.perf_counter()
        await asyncio.sleep(ENGINE_SEC)
        self.version, self.highest = asked.version, asked.epoch
        seconds = time.perf_counter() - began
        self.took.append(seconds)
        return _json(Synced(epoch=asked.epoch, version=asked.version, ok=True, pause_sec=seconds))


@dataclass
class Gateway:
    """Notes the first word of each epoch's hold and release, by post or by watch."""

    ip: str
    held: dict[int, float] = field(default_factory=dict)
    released: dict[int, float] = field(default_factory=dict)

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/internal/paused", self.paused)]

    async def paused(self, request: web.Request) -> web.Response:
        told = Paused.model_validate_json(await request.read())
        self.note(told.epoch, held=told.lease_sec > 0)
        return _json(PausedAck(epoch=told.epoch, pod_uid=self.ip, process_start=0.0, paused=told.lease_sec > 0))

    def note(self, epoch: int, *, held: bool) -> None:
        if not held:
            self.released.setdefault(epoch, time.perf_counter())
        elif epoch not in self.released:
            self.held.setdefault(epoch, time.perf_counter())

    async def watch(self, api: Kube, namespace: str) -> None:
        collection = kube.path(LEASES, "leases", namespace)
        chosen = f"metadata.name={names.weight_sync_lease(NAME)}"
        while True:
            async for _, lease in api.watch(
                collection, field_selector=chosen, resource_version=await _now(api, collection)
            ):
                if "spec" in lease:
                    state = parse_weight_sync(lease)
                    self.note(state.epoch, held=state.hold is not None)


def _json(body: AgentState | Prepared | Synced | PausedAck) -> web.Response:
    return web.Response(text=body.model_dump_json(), content_type="application/json")


@asynccontextmanager
async def _serving(ip: str, port: int, routes: list[web.RouteDef]) -> AsyncIterator[None]:
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, ip, port).start()
    try:
        yield
    finally:
        await runner.cleanup()


@asynccontextmanager
async def _namespace(api: Kube) -> AsyncIterator[str]:
    name = f"bench-{uuid.uuid4().hex[:8]}"
    await api.create(kube.path("v1", "namespaces"), {"metadata": {"name": name}})
    try:
        yield name
    finally:
        await api.delete(kube.path("v1", "namespaces", name=name))


def _training(namespace: str) -> Training:
    spec = {"model": {"path": "base"}, "api": {"baseUrl": "http://judge/v1"}, "judge": {"model": "m"}}
    return Training(namespace, NAME, str(uuid.uuid4()), 1, TrainingSpec.model_validate(spec))


def _world(agents: list[Agent], gateways: list[Gateway], version: WeightVersion | None) -> m.World:
    return m.World(
        engines=tuple(m.EnginePod(agent.ip, agent.ip, agent.ip, True) for agent in agents),
        gateways=tuple(m.GatewayPod(gateway.ip, gateway.ip, gateway.ip, True) for gateway in gateways),
        published=Published(version=version),
        pinned=None,
        pause_timeout_sec=30,
    )


async def _now(api: Kube, collection: str) -> str:
    """resourceVersion to watch from; a watch without one needs an etcd newer than some clusters have."""
    version: str = (await api.list(collection))["metadata"]["resourceVersion"]
    return version


async def _measure_watch(api: Kube, namespace: str, rounds: int) -> list[float]:
    """Seconds from a Lease patch being sent to its watch event."""
    collection, name = kube.path(LEASES, "leases", namespace), "probe"
    await api.create(collection, {"metadata": {"name": name}})
    seen: asyncio.Queue[str] = asyncio.Queue()

    async def follow() -> None:
        async for _, lease in api.watch(collection, field_selector=f"metadata.name={name}", resource_version=version):
            await seen.put((lease["metadata"].get("annotations") or {}).get("round", ""))

    version = await _now(api, collection)
    watching = asyncio.create_task(follow())
    await asyncio.sleep(1)
    took = []
    for number in range(rounds):
        began = time.perf_counter()
        patch = {"metadata": {"annotations": {"round": str(number)}}}
        sent = asyncio.create_task(api.merge_patch(f"{collection}/{name}", patch))
        async with asyncio.timeout(10):
            while await seen.get() != str(number):
                pass
        took.append(time.perf_counter() - began)
        await sent
    watching.cancel()
    return took


async def _syncs(api: Kube, namespace: str, agents: list[Agent], gateways: list[Gateway], rounds: int) -> list[float]:
    """Overheads in seconds."""
    training = _training(namespace)
    lease = names.weight_sync_lease(NAME)
    await api.create(kube.path(LEASES, "leases", namespace), {"metadata": {"name": lease}})
    overheads = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True)) as session:
        loop = SyncLoop(
            training, identity="bench", kube=api, session=session, recorder=Recorder(api), changed=lambda: None
        )
        running = [asyncio.create_task(loop.run())]
        running += [asyncio.create_task(gateway.watch(api, namespace)) for gateway in gateways]
        try:
            loop.update(training, _world(agents, gateways, None), TOKENS)
            await asyncio.sleep(2)
            for number in range(1, rounds + 1):
                version = WeightVersion.of(number, f"{number:064x}")
                loop.update(training, _world(agents, gateways, version), TOKENS)
                async with asyncio.timeout(30):
                    while loop.view.last_sync is None or loop.view.last_sync.version != str(version):  # noqa: ASYNC110 - no event tells it
                        await asyncio.sleep(0.01)
                epoch = loop.view.last_sync.epoch
                windows = [gateway.released[epoch] - gateway.held[epoch] for gateway in gateways]
                overheads.append(max(windows) - max(agent.took[-1] for agent in agents))
                await asyncio.sleep(0.2)
        finally:
            for task in running:
                task.cancel()
            await asyncio.wait(running)
    return overheads


def _percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


def _figures(values: list[float]) -> dict[str, float]:
    return {
        "p50_ms": round(statistics.median(values) * 1000, 2),
        "p99_ms": round(_percentile(values, 0.99) * 1000, 2),
    }


async def _run(options: argparse.Namespace) -> dict[str, object]:
    agents = [Agent(f"127.0.8.{index + 1}") for index in range(options.engines)]
    gateways = [Gateway(f"127.0.9.{index + 1}") for index in range(options.gateways)]
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(Kube.from_kubeconfig(Cluster.from_environment().parsed_kubeconfig()))
        namespace = await stack.enter_async_context(_namespace(api))
        for agent in agents:
            await stack.enter_async_context(_serving(agent.ip, names.PORT_AGENT, agent.routes()))
        for gateway in gateways:
            await stack.enter_async_context(_serving(gateway.ip, names.PORT_GATEWAY_INTERNAL, gateway.routes()))
        watch = await _measure_watch(api, namespace, options.rounds)
        overheads = await _syncs(api, namespace, agents, gateways, options.rounds)
    return {
        "gateways": options.gateways,
        "engines": options.engines,
        "rounds": options.rounds,
        "overhead": _figures(overheads),
        "lease_patch_to_watch": _figures(watch),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gateways", type=int, default=4)
    parser.add_argument("--engines", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=100)
    sys.stdout.write(json.dumps(asyncio.run(_run(parser.parse_args()))) + "\n")


if __name__ == "__main__":
    main()
