"""A training whose every process can be killed, stopped and cut off: the bed of the fault matrix.

    control plane of its own ◀── real operator · real gateway ── two real agents, each with a fake engine
    (etcd, API server)       ◀── a stand-in for the trainer: publishes what it is told to, trains nothing
                                 each in a network namespace, restarted when it ends, as by a kubelet

Pods exist as objects on that API server; their addresses are the namespaces'. No container runs: what Kubernetes adds
here is the API, and restarts after a second.
"""

import asyncio
import base64
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from openclaw_cluster import bare
from openclaw_core import kube as paths
from openclaw_core import names
from openclaw_core.config.components import engine_config, gateway_config
from openclaw_core.config.spec import TrainingSpec
from openclaw_core.kube import Kube, KubeError
from openclaw_core.leases import WeightSyncState, parse_weight_sync
from openclaw_core.wire import Stats
from tests.faults.client import Client
from tests.faults.pod_network import PodNetwork, pod_network, relay

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE, NAME = "default", "demo"
PAUSE_TIMEOUT_SEC = 10
RESTART_SEC = 1.0
ADDRESSES = {"operator": 10, "trainer": 11, "gateway": 20, "engine-0": 30, "engine-1": 31}
ENGINES = ("engine-0", "engine-1")
Object = dict[str, Any]


@dataclass
class Part:
    """A process of the bed; `restarts` counts how often it was started again."""

    name: str
    line: list[str]
    environment: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    restarts: int = -1
    ended_at: float | None = None

    def start(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.line, env=self.environment, stdout=output, stderr=output, cwd=ROOT, start_new_session=True
            )
        self.restarts, self.ended_at = self.restarts + 1, None

    def look(self, now: float) -> None:
        """Start it again a second after it ended."""
        if self.process is None or self.process.poll() is None:
            return
        self.ended_at = self.ended_at or now
        if now - self.ended_at >= RESTART_SEC:
            self.start()

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)


class Bed:
    """Everything that runs. `api` is the administrator's."""

    def __init__(self, folder: Path, plane: bare.Bare, network: PodNetwork, api: Kube, spec: Object) -> None:
        self.folder, self.plane, self.network, self.api = folder, plane, network, api
        self.experience = folder / "experience"
        self.parts: dict[str, Part] = {}
        self.client = Client(f"http://10.213.7.{ADDRESSES['gateway']}:30000/v1/chat/completions")
        self.wanted = 0
        self.tokens: dict[str, str] = {}
        """Of Secret `demo-internal`, by key."""
        self._body = spec
        self._spec = TrainingSpec.model_validate(spec)

    # ------------------------------------------------------------ bringing up

    async def open(self) -> None:
        for name, number in ADDRESSES.items():
            self.network.add(name, number)
        await self._apply_training()
        self._start("operator", _part("operator"), self._operator_environment())
        self.tokens = tokens = await self._tokens()
        await self.until("the Leases are there", self.lease, 60)
        weights = self.folder / "weights"
        (weights / "base").mkdir(parents=True)
        (weights / "base" / "config.json").write_text("{}")
        (self.folder / "wanted").write_text("0")
        for name in ENGINES:
            await self._pod(name, names.ENGINE)
            config = self._config(name, engine_config(NAME, NAMESPACE, self._spec))
            self._start(name, _part("agent"), config | {"POD": name, names.ENV_AGENT_TOKEN: tokens["agent"]})
        await self._pod("gateway", names.GATEWAY)
        self._start("gateway", _part("gateway"), self._gateway_environment(tokens["gateway"]))
        self._start("trainer", _part("trainer"), {"NAMESPACE": NAMESPACE})

    def _start(self, name: str, line: list[str], environment: dict[str, str]) -> None:
        common = {"KUBECONFIG": str(self.plane.kubeconfig), "MATRIX_DIR": str(self.folder), "PYTHONPATH": str(ROOT)}
        part = Part(
            name, self.network.inside(name) + line, os.environ | common | environment, self.folder / f"{name}.log"
        )
        self.parts[name] = part
        part.start()

    def _operator_environment(self) -> dict[str, str]:
        images = {f"OPENCLAW_IMAGE_{component.upper()}": f"none/{component}:1" for component in names.COMPONENTS}
        return images | {"OPENCLAW_NAMESPACE": NAMESPACE, names.ENV_POD_NAME: "operator"}

    def _gateway_environment(self, token: str) -> dict[str, str]:
        self.experience.mkdir()
        engines = ",".join(f"10.213.7.{ADDRESSES[name]}:{names.PORT_SGLANG}" for name in ENGINES)
        return self._config("gateway", gateway_config(NAME, NAMESPACE, self._spec)) | {
            names.ENV_GATEWAY_TOKEN: token,
            "OPENCLAW_EXPERIENCE_DIR": str(self.experience),
            "OPENCLAW_ENGINES": engines,
            names.ENV_POD_UID: "gateway",
        }

    def _config(self, name: str, config: Any) -> dict[str, str]:
        path = self.folder / f"{name}.json"
        path.write_text(config.model_dump_json(by_alias=True))
        return {names.ENV_CONFIG: str(path)}

    async def _apply_training(self) -> None:
        crd = yaml.safe_load((ROOT / "crds" / "openclawtrainings.openclawrl.io.yaml").read_text())
        await self.api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
        collection = paths.path(names.API_VERSION, names.PLURAL, NAMESPACE)
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {"name": NAME},
            "spec": self._body,
        }
        await self.until("the training is taken", lambda: self._create(collection, body), 30)

    async def _create(self, collection: str, body: Object) -> bool:
        try:
            await self.api.create(collection, body)
        except KubeError:
            return False
        return True

    async def _tokens(self) -> dict[str, str]:
        path = paths.path("v1", "secrets", NAMESPACE, name=names.internal_secret(NAME))
        data = (await self.until("the tokens are there", lambda: self._get(path), 90))["data"]
        return {key: base64.b64decode(value).decode() for key, value in data.items()}

    async def _pod(self, name: str, component: str) -> None:
        labels = {names.LABEL_TRAINING: NAME, names.LABEL_COMPONENT: component}
        pod = {
            "metadata": {"name": f"{NAME}-{name}", "labels": labels},
            "spec": {"containers": [{"name": component, "image": "none"}]},
        }
        collection = paths.path("v1", "pods", NAMESPACE)
        await self.until("the pod is taken", lambda: self._create(collection, pod), 30)
        address = f"10.213.7.{ADDRESSES[name]}"
        ready = [{"type": "Ready", "status": "True"}]
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": ready}
        await self.api.merge_patch(f"{collection}/{NAME}-{name}/status", {"status": status})

    # ------------------------------------------------------------ running

    async def keep(self) -> None:
        """What a kubelet does: start again what ended, bring the target into the pods."""
        while True:
            for part in self.parts.values():
                part.look(time.monotonic())
            with contextlib.suppress(KubeError, aiohttp.ClientError, TimeoutError, KeyError):
                async with asyncio.timeout(2):
                    found = await self.api.get(
                        paths.path("v1", "configmaps", NAMESPACE, name=names.target_config_map(NAME))
                    )
                for name in ENGINES:
                    fresh = self.folder / f"target-{name}.new"
                    fresh.write_text(found["data"]["target.json"])
                    fresh.replace(self.folder / f"target-{name}.json")
            await asyncio.sleep(0.2)

    def publish(self) -> int:
        """Have the trainer publish the next version; its number."""
        self.wanted += 1
        fresh = self.folder / "wanted.new"
        fresh.write_text(str(self.wanted))
        fresh.replace(self.folder / "wanted")
        return self.wanted

    async def _get(self, path: str) -> Object | None:
        try:
            async with asyncio.timeout(2):
                return await self.api.get(path)
        except (KubeError, aiohttp.ClientError, TimeoutError):
            return None

    async def lease(self) -> WeightSyncState | None:
        found = await self._get(
            paths.path("coordination.k8s.io/v1", "leases", NAMESPACE, name=names.weight_sync_lease(NAME))
        )
        return parse_weight_sync(found) if found is not None else None

    async def published(self) -> int:
        found = await self._get(
            paths.path("coordination.k8s.io/v1", "leases", NAMESPACE, name=names.published_lease(NAME))
        )
        notes = (found or {}).get("metadata", {}).get("annotations") or {}
        return int(notes.get(names.ANNOTATION_VERSION, "0-").split("-")[0])

    async def engine_versions(self) -> list[str]:
        """What the engines themselves say they have loaded; "paused" for one that stands still."""
        timeout = aiohttp.ClientTimeout(total=2)
        async with aiohttp.ClientSession(timeout=timeout) as http:
            return [await self._engine(http, name) for name in ENGINES]

    async def _engine(self, http: aiohttp.ClientSession, name: str) -> str:
        url = f"http://10.213.7.{ADDRESSES[name]}:{names.PORT_SGLANG}"
        try:
            async with http.get(f"{url}/ready") as ready, http.get(f"{url}/model_info") as info:
                return str((await info.json())["weight_version"]) if ready.status == 200 else "paused"
        except (aiohttp.ClientError, TimeoutError):
            return "silent"

    async def gateway_serves(self) -> bool:
        """Its process answers, whatever it says of engines and pauses."""
        url = f"http://10.213.7.{ADDRESSES['gateway']}:30000/healthz"
        try:
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as http, http.get(url) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def stats(self) -> Stats | None:
        """The store's accounts, where a gateway tells them."""
        url = f"http://10.213.7.{ADDRESSES['gateway']}:{names.PORT_GATEWAY_INTERNAL}/internal/stats"
        headers, timeout = {"Authorization": f"Bearer {self.tokens['gateway']}"}, aiohttp.ClientTimeout(total=2)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as http,
                http.get(url, headers=headers) as answer,
            ):
                return Stats.model_validate_json(await answer.read()) if answer.status == 200 else None
        except (aiohttp.ClientError, TimeoutError):
            return None

    async def settled(self, number: int) -> bool:
        """Version `number` is served, by everything, unpaused."""
        lease = await self.lease()
        served = lease.serving_version if lease is not None and lease.hold is None else None
        if served is None or int(served.split("-")[0]) != number:
            return False
        return await self.engine_versions() == [served, served]

    async def until(self, what: str, true: Callable[[], Any], seconds: float) -> Any:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := await true():
                return found
            await asyncio.sleep(0.1)
        raise TimeoutError(f"{what}: not within {seconds:.0f} s; logs in {self.folder}")


@asynccontextmanager
async def bed(folder: Path, **changes: Object) -> AsyncIterator[Bed]:
    """A running one, its client asking already. `changes`: of sections of the spec."""
    async with AsyncExitStack() as stack:
        plane = stack.enter_context(bare.control_plane(folder / "plane", bare.Options(controllers=False)))
        network = stack.enter_context(pod_network(plane.port))
        api = await stack.enter_async_context(Kube.from_kubeconfig(yaml.safe_load(plane.kubeconfig.read_text())))
        spec = _spec(folder / "weights")
        spec |= {section: spec.get(section, {}) | change for section, change in changes.items()}
        made = Bed(folder, plane, network, api, spec)
        running = [asyncio.create_task(relay(plane.port))]
        try:
            await made.open()
            running += [asyncio.create_task(made.keep()), asyncio.create_task(made.client.run())]
            await made.until("the base is served", lambda: made.settled(0), 120)
            yield made
        finally:
            for task in running:
                task.cancel()
            for part in made.parts.values():
                part.signal(signal.SIGCONT)
                part.signal(signal.SIGKILL)
                if part.process is not None:
                    part.process.wait(timeout=10)
            _kill_engines(folder)


def _kill_engines(folder: Path) -> None:
    for file in folder.glob("sglang-*.pid"):
        with contextlib.suppress(ProcessLookupError, ValueError):
            os.kill(int(file.read_text()), signal.SIGKILL)


def _part(name: str) -> list[str]:
    return [sys.executable, "-m", "tests.faults.parts", name]


def _spec(weights: Path) -> Object:
    return {
        "model": {"path": str(weights / "base")},
        "policyServing": {"device": "cpu", "replicas": 2, "pauseTimeoutSec": PAUSE_TIMEOUT_SEC},
        "policyTraining": {"device": "cpu"},
        "api": {"baseUrl": "http://judge.invalid/v1"},
        "judge": {"model": "none"},
        "storage": {"weights": {"size": "1Mi"}, "experience": {"size": "1Mi"}},
    }
