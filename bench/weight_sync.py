"""The overhead of a weight sync on a real API server: `python -m bench.weight_sync [--gateways 4 --engines 8]`.

The operator's own loop runs here against stand-in agents and gateways in two other processes (`stand_ins`); Lease and
events live in a fresh namespace. A window is what a user of one gateway sees: from its first word of the hold (direct
post or Lease watch) to its first word of the release. Overhead = the longest window − the slowest engine's own update.
`--table 30` shows the window's parts for fleets of 1 to 4 gateways and 1 to 8 engines first (`sync_parts`).
Beside it, after each sync: the time from one Lease patch to the watch event of it; and how many requests of stock
clients fail over such windows (`clients`). Then real SGLang (`real_engine`; `--real-rounds 0` leaves it out), one
engine and two: the window and its parts beside the copying of the same bytes, and LoRA adapters swapped under load. The
last line is JSON; what this run did not measure is null.
"""

import argparse
import asyncio
import gc
import json
import statistics
import sys
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

if __name__ == "__main__" and not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import clients, real_engine, stand_ins, sync_parts, users
from bench.stand_ins import Row
from bench.sync_parts import Sync
from examples.quickstart.commands import Cluster
from openclaw_core import kube, names
from openclaw_core.config.spec import TrainingSpec
from openclaw_core.kube import Kube
from openclaw_core.leases import Published
from openclaw_core.status import LastSync
from openclaw_core.versions import WeightVersion
from openclaw_operator import service
from openclaw_operator.events import Recorder
from openclaw_operator.training import Training
from openclaw_operator.weightsync import model as m
from openclaw_operator.weightsync.edge import SyncLoop, Tokens

LEASES = "coordination.k8s.io/v1"
TOKENS = Tokens(gateway="bench", agent="bench")
NAME, PROBE = "bench", "probe"
GAP_SEC = 0.2
ENGINE_SEC = 0.05
FLEETS = ((1, 2, 4), (1, 2, 4, 8))
"""Gateways and engines of the table."""
Figures = dict[str, object]


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


def _world(engines: Sequence[str], gateways: Sequence[str], version: WeightVersion | None) -> m.World:
    return m.World(
        engines=tuple(m.EnginePod(address, address, address, True) for address in engines),
        gateways=tuple(m.GatewayPod(address, address, address, True) for address in gateways),
        published=Published(version=version),
        pinned=None,
        pause_timeout_sec=30,
    )


async def _now(api: Kube, collection: str) -> str:
    """resourceVersion to watch from; a watch without one needs an etcd newer than some clusters have."""
    version: str = (await api.list(collection))["metadata"]["resourceVersion"]
    return version


class LeaseProbe:
    """Patches a Lease and waits for its watch to tell so: the least that an announcement by the API server takes."""

    def __init__(self, api: Kube, namespace: str) -> None:
        self._api, self._collection = api, kube.path(LEASES, "leases", namespace)
        self._seen: asyncio.Queue[str] = asyncio.Queue()
        self.took: list[float] = []
        """Seconds of each round."""

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        await self._api.create(self._collection, {"metadata": {"name": PROBE}})
        following = asyncio.create_task(self._follow(await _now(self._api, self._collection)))
        await asyncio.sleep(1)
        try:
            yield
        finally:
            following.cancel()
            await asyncio.wait([following])

    async def round(self) -> None:
        number = str(len(self.took))
        began = time.perf_counter()
        patch = {"metadata": {"annotations": {"round": number}}}
        sent = asyncio.create_task(self._api.merge_patch(f"{self._collection}/{PROBE}", patch))
        async with asyncio.timeout(10):
            while await self._seen.get() != number:
                pass
        self.took.append(time.perf_counter() - began)
        await sent

    async def _follow(self, version: str) -> None:
        chosen = f"metadata.name={PROBE}"
        async for _, lease in self._api.watch(self._collection, field_selector=chosen, resource_version=version):
            await self._seen.put((lease["metadata"].get("annotations") or {}).get("round", ""))


async def _syncs(api: Kube, namespace: str, stand_ins: "StandIns", rounds: int, probe: LeaseProbe) -> list[Sync]:
    """Publish one version after another to the operator's own loop, and in the same pace patch the probe's Lease."""
    training, found = _training(namespace), []
    engines, gateways = stand_ins.engines, stand_ins.gateways
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=service.KEEP_ALIVE_SEC)
    async with aiohttp.ClientSession(connector=connector) as session:
        loop = SyncLoop(
            training, identity="bench", kube=api, session=session, recorder=Recorder(api), changed=lambda: None
        )
        running = asyncio.create_task(loop.run())
        try:
            loop.update(training, _world(engines, gateways, None), TOKENS)
            await asyncio.sleep(2)
            for number in range(1, rounds + 1):
                version, published = WeightVersion.of(number, f"{number:064x}"), time.monotonic()
                loop.update(training, _world(engines, gateways, version), TOKENS)
                await _served(loop, str(version))
                found.append(stand_ins.last_sync(published, loop.view.last_sync))
                await asyncio.sleep(GAP_SEC)
                await probe.round()
                await asyncio.sleep(GAP_SEC)
        finally:
            running.cancel()
            await asyncio.wait([running])
    return found


async def _served(loop: SyncLoop, version: str) -> None:
    async with asyncio.timeout(30):
        while loop.view.last_sync is None or loop.view.last_sync.version != version:  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.01)


@dataclass(frozen=True)
class StandIns:
    """Addresses of engines and gateways, and the processes that play them."""

    engines: Sequence[str]
    gateways: Sequence[str]
    engine_process: stand_ins.Process
    gateway_process: stand_ins.Process

    def last_sync(self, published: float, last: LastSync | None) -> Sync:
        """What they noted of the sync that ended just now."""
        assert last is not None
        windows: list[Row] = []
        updates: list[Row] = []
        for _ in range(100):  # a gateway may still be reading its word; nothing is measured in this moment
            time.sleep(0.05)
            windows += [row for row in self.gateway_process.rows() if row.epoch == last.epoch]
            updates += [row for row in self.engine_process.rows() if row.epoch == last.epoch]
            if len(windows) == len(self.gateways):
                break
        return Sync.of(published, windows, updates)


def _percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


async def _run(options: argparse.Namespace) -> Figures:
    kubeconfig = Cluster.from_environment().parsed_kubeconfig()
    async with Kube.from_kubeconfig(kubeconfig) as api:
        if options.table:
            sys.stdout.write(await _table(api, kubeconfig, options.table) + "\n\n")
        syncs, watch = await _fleet(api, kubeconfig, options.gateways, options.engines, options.rounds)
        asked = await clients.measure(options.client_rounds)
        figures = _result(options, syncs, watch, asked)
        if options.real_rounds:
            real, table = await real_engine.measure(api, kubeconfig, options.real_rounds)
            sys.stdout.write(table + "\n\n")
            figures |= real
    return figures


async def _fleet(
    api: Kube, kubeconfig: dict[str, Any], gateways: int, engines: int, rounds: int
) -> tuple[list[Sync], list[float]]:
    """Syncs of a fleet of stand-ins, and the Lease probe's times beside them."""
    at_engines = [f"127.0.8.{index + 1}" for index in range(engines)]
    at_gateways = [f"127.0.9.{index + 1}" for index in range(gateways)]
    async with AsyncExitStack() as stack:
        namespace = await stack.enter_async_context(_namespace(api))
        lease = names.weight_sync_lease(NAME)
        await api.create(kube.path(LEASES, "leases", namespace), {"metadata": {"name": lease}})
        engine_process = stack.enter_context(stand_ins.process(stand_ins.Engines(tuple(at_engines), ENGINE_SEC)))
        watching = stand_ins.Gateways(tuple(at_gateways), kubeconfig, namespace, lease)
        gateway_process = stack.enter_context(stand_ins.process(watching))
        gc.collect()
        gc.freeze()
        played = StandIns(at_engines, at_gateways, engine_process, gateway_process)
        probe = LeaseProbe(api, namespace)
        async with probe.watching():
            return await _syncs(api, namespace, played, rounds, probe), probe.took


async def _table(api: Kube, kubeconfig: dict[str, Any], rounds: int) -> str:
    """Medians in milliseconds for fleets of every size, as a table."""
    lines = [sync_parts.head(("gateways", "engines"), "Lease")]
    for gateways in FLEETS[0]:
        for engines in FLEETS[1]:
            syncs, watch = await _fleet(api, kubeconfig, gateways, engines, rounds)
            lines.append(sync_parts.line((gateways, engines), syncs, watch))
            sys.stderr.write(lines[-1] + "\n")
    return "\n".join(lines)


def _result(options: argparse.Namespace, syncs: list[Sync], watch: list[float], asked: users.Asked) -> Figures:
    overheads = [sync.overhead for sync in syncs]
    lease_p99 = _percentile(watch, 0.99)
    return {
        "gateways": options.gateways,
        "engines": options.engines,
        "rounds": options.rounds,
        "overhead_ms_p50": _ms(statistics.median(overheads)),
        "overhead_ms_p99": _ms(_percentile(overheads, 0.99)),
        "overhead_p99_over_lease_p99": round(_percentile(overheads, 0.99) / lease_p99, 2),
        "window_ms_p50": _ms(statistics.median([sync.window for sync in syncs])),
        "update_ms_p50": _ms(statistics.median([sync.update for sync in syncs])),
        "update_fastest_ms_p50": _ms(statistics.median([sync.fastest for sync in syncs])),
        "lease_ms_p50": _ms(statistics.median(watch)),
        "lease_ms_p99": _ms(lease_p99),
        "window_over_copy": None,
        "lora_503": None,
        "client_requests": asked.requests,
        "client_failures": asked.failures.total(),
        "client_failures_by_kind": dict(asked.failures),
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gateways", type=int, default=4)
    parser.add_argument("--engines", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--table", type=int, default=0, help="syncs of each size of fleet, shown as a table; 0: none")
    parser.add_argument("--client-rounds", type=int, default=3, help="times that clients meet each length of window")
    parser.add_argument("--real-rounds", type=int, default=12, help="syncs of each kind on real SGLang; 0: none")
    sys.stdout.write(json.dumps(asyncio.run(_run(parser.parse_args()))) + "\n")


if __name__ == "__main__":
    main()
