"""The operator's own loop over pods of the real engine image and one gateway, for the bench on real SGLang."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from bench.orders import Orders
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

LEASES = "coordination.k8s.io/v1"
NAME = "bench"
GATEWAY = "127.0.9.101"


async def new_lease(api: Kube, space: str) -> None:
    """The sync's Lease, new."""
    collection, name = kube.path(LEASES, "leases", space), names.weight_sync_lease(NAME)
    if any(item["metadata"]["name"] == name for item in (await api.list(collection))["items"]):
        await api.delete(f"{collection}/{name}")
    await api.create(collection, {"metadata": {"name": name}})


Publish = Callable[[str], Awaitable[LastSync]]


@asynccontextmanager
async def operator_loop(
    api: Kube, pods: Sequence[EnginePod], gateway_token: str, learning: dict[str, Any], orders: Orders
) -> AsyncIterator[Publish]:
    """The operator's loop over these engines; what is yielded publishes a version and returns once it is served.

    A sync that did not wait for a straggler is over when that one has the version too.
    """
    spec: dict[str, Any] = {"model": {"path": "base"}, "api": {"baseUrl": "http://judge/v1"}, "judge": {"model": "m"}}
    spec["policyTraining"] = learning
    uid = "00000000-0000-0000-0000-000000000000"
    training = Training(pods[0].space, NAME, uid, 1, TrainingSpec.model_validate(spec))
    engines = tuple(m.EnginePod(pod.name, pod.name, _address(pod), True) for pod in pods)
    tokens = Tokens(gateway=gateway_token, agent=engine_pod.AGENT_TOKEN)

    def world(version: str | None) -> m.World:
        return m.World(
            engines=engines,
            gateways=(m.GatewayPod(GATEWAY, GATEWAY, GATEWAY, True),),
            published=Published(version=WeightVersion.parse(version) if version else None),
            pinned=None,
            pause_timeout_sec=120,
        )

    async with aiohttp.ClientSession(trace_configs=[orders.trace()]) as session:
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
                while last.result == "Partial" and not _all_have(loop.view, version):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            if last.result not in ("Succeeded", "Partial"):
                raise RuntimeError(f"the sync to {version} ended so: {last}")
            return last

        try:
            yield sync
        finally:
            running.cancel()
            await asyncio.wait([running])


def _all_have(view: m.SyncView, version: str) -> bool:
    return all(engine.state is not None and engine.state.version == version for engine in view.engines)


def _address(pod: EnginePod) -> str:
    return engine_pod.kubectl("get", "pod", pod.name, "-n", pod.space, "-o", "jsonpath={.status.podIP}").strip()
