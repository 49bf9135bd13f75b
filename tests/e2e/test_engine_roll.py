"""An edit that rolls the engines of a training with two of them, while clients ask: not one request fails.

Real engines of the tiny model, whole requests and streams, no client that tries again. Nothing is trained meanwhile, so
there is no pause that could refuse a request either.
"""

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest

from examples.quickstart import bring_up, manifests
from examples.quickstart.commands import Cluster
from examples.quickstart.console import Clock
from examples.quickstart.forwards import forwarded
from examples.quickstart.options import Options
from openclaw_core import kube, names
from openclaw_operator.pods import is_ready
from tests.e2e.running_training import GATEWAY_PORT, removed_afterwards, until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1200)]
NAMESPACE = "openclaw-engine-roll"
CLIENTS, ENGINES, TOKENS = 4, 2, 24
_LIMIT = aiohttp.ClientTimeout(total=120)


@dataclass
class Asked:
    """What clients saw."""

    answered: int = 0
    failures: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)


@dataclass
class Served:
    """A training with two engines and nobody who talks, yet."""

    objects: kube.Kube
    name: str
    url: str

    async def engines(self) -> list[kube.Object]:
        chosen = manifests.component_selector(self.name, names.ENGINE)
        found: list[kube.Object] = (await self.objects.list(kube.path("v1", "pods", NAMESPACE), label_selector=chosen))[
            "items"
        ]
        return found

    async def edit(self, spec: kube.Object) -> None:
        path = kube.path(names.API_VERSION, names.PLURAL, NAMESPACE, self.name)
        await self.objects.merge_patch(path, {"spec": spec})


@asynccontextmanager
async def served() -> AsyncIterator[Served]:
    cluster = Cluster.from_environment()
    options = Options("tiny", "normal", None, 0, 0, NAMESPACE, None, None, None, build=False, out=Path())
    steps = bring_up.BringUp(cluster, Clock(), options, secrets.token_urlsafe(24))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(removed_afterwards(cluster, NAMESPACE))
        await steps.cluster_and_images()
        await steps.operator_and_namespace()
        manifest = manifests.training("tiny", users=False)
        manifest["spec"]["policyServing"]["replicas"] = ENGINES
        name = str(manifest["metadata"]["name"])
        await cluster.apply([manifest], NAMESPACE)
        await steps.everything(name)
        client = kube.Kube.from_kubeconfig(cluster.parsed_kubeconfig(), cluster.context)
        objects = await stack.enter_async_context(client)
        forward = await stack.enter_async_context(
            forwarded(cluster, NAMESPACE, f"svc/{names.component(name, names.GATEWAY)}", GATEWAY_PORT)
        )
        await forward.ready()
        yield Served(objects, name, forward.url(GATEWAY_PORT))


async def ask(http: aiohttp.ClientSession, url: str, asked: Asked, number: int, stop: asyncio.Event) -> None:
    """One request after another, every second one streamed; each client is a session of its own, on an engine each."""
    headers, count = {"X-Turn-Type": "side", "X-Session-Id": f"roll-{number}"}, 0
    while not stop.is_set():
        count += 1
        stream = count % 2 == 0
        body = {
            "model": "tiny",
            "messages": [{"role": "user", "content": f"Tell me about boats, {number}-{count}."}],
            "max_tokens": TOKENS,
            "stream": stream,
        }
        try:
            async with http.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=_LIMIT) as response:
                fault = _fault(response.status, await response.text(), stream)
        except (aiohttp.ClientError, TimeoutError) as error:
            fault = f"{type(error).__name__}: {error}"
        asked.kinds["stream" if stream else "whole"] += 1
        if fault is None:
            asked.answered += 1
        else:
            asked.failures.append(fault)


def _fault(status: int, text: str, stream: bool) -> str | None:
    if status != 200:
        return f"HTTP {status}: {text[:300]}"
    if not stream:
        return None if json.loads(text)["choices"][0]["finish_reason"] else f"no end: {text[:300]}"
    frames = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    if any('"error"' in frame for frame in frames):
        return f"error frame: {frames[-2:]}"
    return None if frames and frames[-1] == "[DONE]" else f"cut stream: {text[-300:]}"


async def test_roll_of_two_engines_fails_no_request() -> None:
    async with served() as training, aiohttp.ClientSession() as http:
        before = {pod["metadata"]["uid"] for pod in await training.engines()}
        assert len(before) == ENGINES
        asked, stop, least = Asked(), asyncio.Event(), ENGINES
        clients = [asyncio.create_task(ask(http, training.url, asked, number, stop)) for number in range(CLIENTS)]
        await asyncio.sleep(5)
        assert not asked.failures
        await training.edit({"policyServing": {"podTemplate": {"metadata": {"annotations": {"test/roll": "1"}}}}})

        async def missing() -> str | None:
            nonlocal least
            pods = await training.engines()
            ready = [pod for pod in pods if is_ready(pod)]
            least = min(least, len(ready))
            done = len(pods) == len(ready) == ENGINES and not before & {pod["metadata"]["uid"] for pod in pods}
            words = [(pod["metadata"]["name"], is_ready(pod), "deletionTimestamp" in pod["metadata"]) for pod in pods]
            return None if done else f"{words}, answered {asked.answered}, failures {asked.failures[:3]}"

        await until("two new engines", 900, missing)
        await asyncio.sleep(5)
        stop.set()
        await asyncio.gather(*clients)
        print(f"answered {asked.answered} {dict(asked.kinds)}, fewest ready engines {least}")  # noqa: T201 - what was seen
        assert asked.failures == []
        assert asked.answered > 2 * CLIENTS
        assert least >= 1
