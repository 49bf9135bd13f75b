"""The weight sync's edge against real HTTP: agents and gateways on loopback addresses, the Lease in memory."""

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import aiohttp
import pytest
from aiohttp import web

from openclaw_core import names
from openclaw_core.kube import Object
from openclaw_core.leases import Published, WeightSyncState, parse_weight_sync
from openclaw_core.versions import BASE, WeightVersion
from openclaw_core.wire import AgentState, Paused, PausedAck, Prepare, Prepared, Sync, Synced, Transfer
from openclaw_operator.events import Recorder
from openclaw_operator.weightsync import model as m
from openclaw_operator.weightsync.edge import SyncLoop, Tokens
from openclaw_operator.weightsync.gateways import Gateways
from tests.unit.operator.memory_kube import MemoryKube
from tests.unit.operator.trainings import training

LEASE = "/apis/coordination.k8s.io/v1/namespaces/lab/leases/demo-weight-sync"
TARGET = "/api/v1/namespaces/lab/configmaps/demo-target"
NEW = WeightVersion.of(1, "ab" * 32)
TOKENS = Tokens(gateway="gateway-token", agent="agent-token")


_numbers = itertools.count(1)


def address() -> str:
    """A loopback address of this process: tests run beside each other, and agents all listen on one port."""
    return f"127.{64 + os.getpid() // 250 % 128}.{os.getpid() % 250}.{next(_numbers)}"


@dataclass
class Pod:
    """One fake process on a loopback address; it writes down what it was told, and when."""

    ip: str = field(default_factory=address)
    version: str = str(BASE)
    highest: int = 0
    told: list[tuple[str, float, object]] = field(default_factory=list)
    holds: set[int] = field(default_factory=set)

    def note(self, call: str, body: object = None) -> None:
        self.told.append((call, time.monotonic(), body))

    async def state(self, request: web.Request) -> web.Response:
        require(request, TOKENS.agent)
        return answer(
            AgentState(
                version=self.version,
                target=None,
                ready=True,
                paused=False,
                highest_epoch=self.highest,
                phase="serving",
                sglang_version="0.5.23",
            )
        )

    async def prepare(self, request: web.Request) -> web.Response:
        require(request, TOKENS.agent)
        body = Prepare.model_validate_json(await request.read())
        self.note("prepare", body)
        return answer(Prepared(version=body.version, ready=True))

    async def sync(self, request: web.Request) -> web.Response:
        require(request, TOKENS.agent)
        body = Sync.model_validate_json(await request.read())
        self.note("sync", body)
        await asyncio.sleep(0.05)
        self.version, self.highest = body.version, body.epoch
        return answer(Synced(epoch=body.epoch, version=body.version, ok=True, pause_sec=0.05, update_sec=0.04))

    async def paused(self, request: web.Request) -> web.Response:
        require(request, TOKENS.gateway)
        body = Paused.model_validate_json(await request.read())
        self.holds |= {body.epoch} if body.lease_sec else set()
        self.note("hold" if body.lease_sec else "release" if body.epoch in self.holds else "known", body)
        self.holds -= set() if body.lease_sec else {body.epoch}
        return answer(PausedAck(epoch=body.epoch, pod_uid=self.ip, process_start=0.0, paused=body.lease_sec > 0))


def require(request: web.Request, token: str) -> None:
    if request.headers.get("Authorization") != f"Bearer {token}":
        raise web.HTTPUnauthorized


def answer(body: AgentState | Prepared | Synced | PausedAck) -> web.Response:
    return web.Response(text=body.model_dump_json(), content_type="application/json")


@asynccontextmanager
async def serving(
    ip: str, port: int, routes: dict[str, Callable[[web.Request], Awaitable[web.Response]]]
) -> AsyncIterator[None]:
    app = web.Application()
    app.add_routes([web.get(path, call) if path == "/state" else web.post(path, call) for path, call in routes.items()])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, ip, port).start()
    try:
        yield
    finally:
        await runner.cleanup()


def world(engines: list[Pod], gateways: list[Pod], published: WeightVersion | None) -> m.World:
    return m.World(
        engines=tuple(m.EnginePod(pod.ip, f"engine-{pod.ip}", pod.ip, True) for pod in engines),
        gateways=tuple(m.GatewayPod(pod.ip, f"gateway-{pod.ip}", pod.ip, True) for pod in gateways),
        published=Published(version=published, digest="ab" * 32 if published else None),
        pinned=None,
        pause_timeout_sec=30,
        target_missing=True,
    )


def lease(kube: MemoryKube) -> WeightSyncState:
    return parse_weight_sync(kube.objects[LEASE])


async def until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - what is waited for is in other processes
            await asyncio.sleep(0.005)


@asynccontextmanager
async def running(kube: MemoryKube) -> AsyncIterator[SyncLoop]:
    async with aiohttp.ClientSession() as session:
        loop = SyncLoop(
            training(), identity="op", kube=kube, session=session, recorder=Recorder(kube), changed=lambda: None
        )
        task = asyncio.create_task(loop.run())
        try:
            yield loop
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_sync_prepares_then_holds_then_updates_then_releases() -> None:
    engines, gateways = [Pod(), Pod()], [Pod()]
    kube = MemoryKube()
    kube.put(LEASE, {"metadata": {"name": "demo-weight-sync"}, "spec": {}})
    agent = {pod.ip: {"/state": pod.state, "/prepare": pod.prepare, "/sync": pod.sync} for pod in engines}
    async with (
        serving(engines[0].ip, names.PORT_AGENT, agent[engines[0].ip]),
        serving(engines[1].ip, names.PORT_AGENT, agent[engines[1].ip]),
        serving(gateways[0].ip, names.PORT_GATEWAY_INTERNAL, {"/internal/paused": gateways[0].paused}),
        running(kube) as loop,
    ):
        loop.update(training(), world(engines, gateways, None), TOKENS)
        await until(lambda: lease(kube).serving_version == str(BASE))
        loop.update(training(), world(engines, gateways, NEW), TOKENS)
        await until(lambda: loop.view.last_sync is not None)

    order = sorted((when, call) for pod in (*engines, *gateways) for call, when, _ in pod.told if call != "known")
    assert [call for _, call in order] == ["prepare", "prepare", "hold", "sync", "sync", "release"]
    assert {pod.version for pod in engines} == {str(NEW)}
    assert (lease(kube).hold, lease(kube).serving_version, lease(kube).epoch) == (None, str(NEW), 1)
    assert kube.objects[TARGET]["data"]["target.json"] == '{"version":"1-abababab"}'
    last = loop.view.last_sync
    assert last is not None
    assert (last.result, last.epoch, last.version) == ("Succeeded", 1, str(NEW))
    (event,) = [item for path, item in kube.objects.items() if "/events/" in path]
    assert event["reason"] == "WeightSynced"
    assert event["message"].startswith(f"weights {NEW} served by 2/2 engines; submissions paused ")


async def test_engines_of_one_sync_are_sent_to_the_same_transfer() -> None:
    engines, kube, sender = [Pod(), Pod()], MemoryKube(), address()
    kube.put(LEASE, {"metadata": {"name": "demo-weight-sync"}, "spec": {}})
    routes = [{"/state": pod.state, "/prepare": pod.prepare, "/sync": pod.sync} for pod in engines]
    async with (
        serving(engines[0].ip, names.PORT_AGENT, routes[0]),
        serving(engines[1].ip, names.PORT_AGENT, routes[1]),
        running(kube) as loop,
    ):
        loop.update(training(), world(engines, [], None), TOKENS)
        await until(lambda: lease(kube).serving_version == str(BASE))
        loop.update(training(), replace(world(engines, [], NEW), sender=sender), TOKENS)
        await until(lambda: loop.view.last_sync is not None)
    orders = [body for pod in engines for call, _, body in pod.told if call == "sync"]
    assert [order.transfer for order in orders if isinstance(order, Sync)] == [
        Transfer(url=f"http://{sender}:{names.PORT_SENDER}", engines=2)
    ] * 2


class NotingKube(MemoryKube):
    """Notes when the Lease is written."""

    def __init__(self, order: list[str]) -> None:
        super().__init__()
        self._order = order

    async def merge_patch(self, path: str, patch: Object, *, field_manager: str | None = None) -> Object:
        if path == LEASE:
            self._order.append("hold written" if patch["spec"].get("holderIdentity") else "release written")
        return await super().merge_patch(path, patch, field_manager=field_manager)


async def test_word_of_the_release_leaves_before_its_write(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    async def tell(_: object, pod: m.GatewayPod, body: bytes) -> PausedAck:
        told = Paused.model_validate_json(body)
        order.append(f"{'hold' if told.lease_sec else 'release'} told")
        return PausedAck(epoch=told.epoch, pod_uid=pod.uid, process_start=0.0, paused=told.lease_sec > 0)

    monkeypatch.setattr(Gateways, "tell", tell)
    engine, kube = Pod(), NotingKube(order)
    kube.put(LEASE, {"metadata": {"name": "demo-weight-sync"}, "spec": {}})
    routes = {"/state": engine.state, "/prepare": engine.prepare, "/sync": engine.sync}
    async with serving(engine.ip, names.PORT_AGENT, routes), running(kube) as loop:
        loop.update(training(), world([engine], [Pod(), Pod()], NEW), TOKENS)
        await until(lambda: loop.view.last_sync is not None)
    since_hold = order[order.index("hold told") :]
    assert since_hold[:5] == ["hold told"] * 2 + ["release told"] * 2 + ["release written"]


async def test_silent_gateway_is_waited_for_half_a_second_and_then_left() -> None:
    engine, silent = Pod(), Pod()
    kube = MemoryKube()
    kube.put(LEASE, {"metadata": {"name": "demo-weight-sync"}, "spec": {}})
    routes = {"/state": engine.state, "/prepare": engine.prepare, "/sync": engine.sync}
    async with serving(engine.ip, names.PORT_AGENT, routes), running(kube) as loop:
        loop.update(training(), world([engine], [silent], NEW), TOKENS)
        await until(lambda: loop.view.last_sync is not None)
    last = loop.view.last_sync
    assert last is not None
    assert last.result == "Succeeded"
    assert last.pause_ms >= 500
