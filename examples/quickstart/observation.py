"""Watching the training from outside: four loops that only read.

    Lease watch ──────────────▶ WindowLog    (kubeconfig; every state of <name>-weight-sync)
    agents' /state, 1/s ──────▶ EngineLog    (port-forward per engine pod; SGLang's /server_info once a pod)
    trainer /state, 1/s ──────▶ TrainerState
    environment /report, 1/s ─▶ ClientReport;  gateway /internal/stats, 1/s ─▶ Stats

Each loop shrugs off a component that is away for a moment; what it last said stays until it is back.
"""

import asyncio
import base64
import json
import logging
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import aiohttp

from examples.quickstart.commands import Cluster
from examples.quickstart.engines import EngineLog
from examples.quickstart.forwards import Forward, forwarded
from examples.quickstart.manifests import component_selector
from examples.quickstart.windows import WindowLog
from openclaw_core import kube, leases, names, wire

_EVERY_SEC = 1.0
_ANSWER_WITHIN_SEC = 10.0
_log = logging.getLogger(__name__)
_AWAY = (aiohttp.ClientError, TimeoutError, ConnectionError, ValueError)


@dataclass
class Observation:
    """The newest of everything; shared by the loops (writers) and the live view (reader)."""

    windows: WindowLog = field(default_factory=WindowLog)
    engines: EngineLog = field(default_factory=EngineLog)
    trainer: wire.TrainerState | None = None
    users: wire.ClientReport = field(default_factory=wire.ClientReport)
    stats: wire.Stats = field(default_factory=wire.Stats)
    serving: str = "0-00000000"

    def rates(self) -> list[float]:
        """Share of liked answers per update, as the judge scored them: (mean reward + 1) / 2."""
        return [(update.reward_mean + 1) / 2 for update in self.trainer.updates] if self.trainer else []


class Observer:
    """Reads everything of one training."""

    def __init__(self, cluster: Cluster, namespace: str, training: str, http: aiohttp.ClientSession) -> None:
        self._cluster, self._namespace, self._training, self._http = cluster, namespace, training, http
        self.seen = Observation()

    async def tokens(self) -> dict[str, str]:
        """Bearer tokens of gateway and agents, from the training's generated Secret."""
        secret = await self._cluster.get("-n", self._namespace, "secret", names.internal_secret(self._training))
        return {key: base64.b64decode(value).decode() for key, value in secret.get("data", {}).items()}

    async def watch_lease(self) -> None:
        """Every state of the pause Lease, from the beginning of time to cancellation."""
        name = names.weight_sync_lease(self._training)
        collection = kube.path("coordination.k8s.io/v1", "leases", self._namespace)
        selector = f"metadata.name={name}"
        config = self._cluster.parsed_kubeconfig()
        async with kube.Kube.from_kubeconfig(config, self._cluster.context) as client:
            version = ""
            while True:
                try:
                    # From where the last watch ended, so that no hold slips through between two watches.
                    version = version or await self._list_lease(client, collection, selector)
                    async for kind, lease in client.watch(
                        collection, resource_version=version, field_selector=selector
                    ):
                        version = lease["metadata"]["resourceVersion"]
                        if kind in ("ADDED", "MODIFIED"):
                            self.seen.windows.observe(leases.parse_weight_sync(lease), time.time())
                except kube.GoneError:
                    version = ""
                except (*_AWAY, kube.KubeError) as error:
                    _log.debug("lease watch", exc_info=error)
                    await asyncio.sleep(0.5)

    async def _list_lease(self, client: kube.Kube, collection: str, selector: str) -> str:
        """Resource version to watch from; what is there is a state like any other."""
        listed = await client.list(collection, field_selector=selector)
        for lease in listed["items"]:
            self.seen.windows.observe(leases.parse_weight_sync(lease), time.time())
        return str(listed["metadata"]["resourceVersion"])

    async def poll_stats(self, gateway: Forward, token: str) -> None:
        url = f"{gateway.url(names.PORT_GATEWAY_INTERNAL)}/internal/stats"
        while True:
            if (text := await self._read(url, token)) is not None:
                self.seen.stats = wire.Stats.model_validate_json(text)
            await asyncio.sleep(_EVERY_SEC)

    async def poll_trainer(self, trainer: Forward) -> None:
        await trainer.ready()
        url = f"{trainer.url(names.PORT_TRAINER)}/state"
        while True:
            if (text := await self._read(url)) is not None:
                self.seen.trainer = wire.TrainerState.model_validate_json(text)
            await asyncio.sleep(_EVERY_SEC)

    async def poll_users(self, environment: Forward) -> None:
        await environment.ready(timeout_sec=900)
        url = f"{environment.url(names.PORT_ENVIRONMENT)}/report"
        while True:
            if (text := await self._read(url)) is not None:
                self.seen.users = wire.ClientReport.model_validate_json(text)
            await asyncio.sleep(_EVERY_SEC)

    async def poll_engines(self, token: str) -> None:
        """A port-forward per engine pod, as pods come and go; each pod's weights every second."""
        async with AsyncExitStack() as stack:
            known: dict[str, Forward] = {}
            while True:
                for pod in await self._engine_pods():
                    if pod not in known:
                        known[pod] = await stack.enter_async_context(
                            forwarded(self._cluster, self._namespace, f"pod/{pod}", names.PORT_SGLANG, names.PORT_AGENT)
                        )
                for _ in range(10):
                    for pod, forward in known.items():
                        await self._look_at(pod, forward, token)
                    await asyncio.sleep(_EVERY_SEC)

    async def _look_at(self, pod: str, forward: Forward, token: str) -> None:
        if not forward.is_ready():
            return
        if (text := await self._read(f"{forward.url(names.PORT_AGENT)}/state", token)) is not None:
            state = wire.AgentState.model_validate_json(text)
            if state.version and state.checksum and state.phase == "serving":
                self.seen.engines.weights(pod, state.version, state.checksum)
                self.seen.serving = state.version
        if pod not in self.seen.engines.sglang:
            text = await self._read(f"{forward.url(names.PORT_SGLANG)}/server_info")
            if text is not None and (version := sglang_version(text)):
                self.seen.engines.server_info(pod, version)

    async def _engine_pods(self) -> list[str]:
        selector = component_selector(self._training, names.ENGINE)
        pods = await self._cluster.get("-n", self._namespace, "pods", "-l", selector)
        return [p["metadata"]["name"] for p in pods.get("items", []) if p.get("status", {}).get("phase") == "Running"]

    async def _read(self, url: str, token: str | None = None) -> str | None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            async with asyncio.timeout(_ANSWER_WITHIN_SEC), self._http.get(url, headers=headers) as response:
                return await response.text() if response.status == 200 else None
        except _AWAY as error:
            _log.debug("reading %s", url, exc_info=error)
            return None


def sglang_version(server_info: str) -> str | None:
    """`version` of SGLang's /server_info."""
    try:
        version = json.loads(server_info).get("version")
    except (ValueError, AttributeError):
        return None
    return str(version) if version else None
