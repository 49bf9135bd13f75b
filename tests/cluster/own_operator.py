"""An operator process of the test's own, against a control plane of its own, and a kubelet on paper for its pods.

The process is the product's (`openclaw_operator`); only the pods are on paper:
`PaperKubelet` writes the status a kubelet would.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from openclaw_cluster import bare
from openclaw_core import names
from openclaw_core.kube import Kube, KubeError
from tests.cluster.lab import Lab, until

Object = dict[str, Any]
_PRODUCT = "import runpy; runpy.run_module('openclaw_operator', run_name='__main__', alter_sys=True)"
IMAGES = {f"OPENCLAW_IMAGE_{component.upper()}": f"registry.test/{component}:1" for component in names.COMPONENTS}


@dataclass
class OwnOperator:
    """One contender process. `folder` gets its log."""

    kubeconfig: Path
    folder: Path
    name: str = "operator-0"
    environ: dict[str, str] = field(default_factory=dict)
    process: "subprocess.Popen[bytes] | None" = None
    port: int = 0
    keep: bool = False
    """Start it again, as a kubelet would, when it could not renew its lead in time on a busy machine."""
    first: str = ""
    """Python that runs in the process before the product does, to shorten a wait."""
    restarts: int = 0
    _wanted: bool = False
    _keeper: threading.Thread | None = None

    def start(self) -> None:
        """Start the process, and with `keep` a thread that looks after it until `kill`."""
        self._begin()
        self._wanted = True
        if self.keep and self._keeper is None:
            self._keeper = threading.Thread(target=self._look_after, daemon=True)
            self._keeper.start()

    def _look_after(self) -> None:
        while True:
            time.sleep(0.5)
            if self._wanted and not self.alive() and "LeadershipLostError" in self.log.read_text()[-600:]:
                self.restarts += 1
                self._begin()

    def _begin(self) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        environ = os.environ | IMAGES | {
            "KUBECONFIG": str(self.kubeconfig),
            "OPENCLAW_POD_NAME": self.name,
            "OPENCLAW_NAMESPACE": "ops",
            "OPENCLAW_PORT": str(self.port),
        } | self.environ  # fmt: skip
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", f"{self.first}\n{_PRODUCT}"],
                env=environ,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal and wait for the end."""
        self._wanted = False
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(30)

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of one of its own pages; (0, "") when it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=3) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def leads(self) -> bool:
        return "openclawrl_operator_leading 1.0" in self.get("/metrics")[1]

    def metric(self, series: str) -> float:
        """Value of one series, 0 where it is absent."""
        lines = [line for line in self.get("/metrics")[1].splitlines() if line.startswith(f"{series} ")]
        return float(lines[0].split()[-1]) if lines else 0.0

    def until_leading(self, seconds: float = 60.0) -> float:
        """Wait for the lead; seconds it took."""
        began = time.monotonic()
        until(f"{self.name} leads; see {self.log}", self.leads, seconds, every=0.05)
        return time.monotonic() - began


def ready(pod: Object) -> Object:
    """Status of a pod whose containers run and are ready."""
    now = "2026-01-01T00:00:00Z"
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": now}
        for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    containers = [
        {"name": item["name"], "image": item["image"], "imageID": "", "ready": True, "started": True,
         "restartCount": 0, "state": {"running": {"startedAt": now}}}
        for item in pod["spec"]["containers"]
    ]  # fmt: skip
    return {"phase": "Running", "conditions": conditions, "containerStatuses": containers}


def waiting(pod: Object, *, condition: Object | None = None, container: Object | None = None) -> Object:
    """Status of a pod that is not ready, with a condition or a container state that says why."""
    item = pod["spec"]["containers"][0]
    states = [{"name": item["name"], "image": item["image"], "imageID": "", "ready": False, "restartCount": 0}]
    return {
        "phase": "Pending",
        "conditions": [condition or {"type": "Ready", "status": "False"}],
        "containerStatuses": [states[0] | container] if container else [],
    }


class PaperKubelet:
    """Writes pod statuses in a thread of its own. `decide` (pod → status, None = leave) may be replaced."""

    def __init__(self, plane: bare.Bare) -> None:
        self._config = yaml.safe_load(plane.kubeconfig.read_text())
        self.decide: Callable[[Object], Object | None] = ready
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> "PaperKubelet":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(10)

    async def _run(self) -> None:
        async with Kube.from_kubeconfig(self._config) as kube:
            while not self._stopped.is_set():
                try:
                    await self._once(kube)
                except (KubeError, aiohttp.ClientError, TimeoutError):
                    await asyncio.sleep(0.5)
                await asyncio.sleep(0.1)

    async def _once(self, kube: Kube) -> None:
        pods = (await kube.list("/api/v1/pods", label_selector=names.LABEL_TRAINING))["items"]
        await asyncio.gather(*(self._write(kube, pod) for pod in pods if "deletionTimestamp" not in pod["metadata"]))

    async def _write(self, kube: Kube, pod: Object) -> None:
        wanted = self.decide(pod)
        now = {key: (pod.get("status") or {}).get(key) for key in wanted or {}}
        if wanted is None or json.dumps(now, sort_keys=True) == json.dumps(wanted, sort_keys=True):
            return
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        try:
            await kube.merge_patch(path, {"metadata": {"uid": pod["metadata"]["uid"]}, "status": wanted})
        except KubeError as error:
            if error.status not in (404, 409):
                raise


@dataclass
class Rig:
    """All of it: the control plane, the kubelet on paper, the operator and a namespace."""

    plane: bare.Bare
    kubelet: PaperKubelet
    operator: OwnOperator
    lab: Lab

    def versions(self, kinds: str) -> dict[str, str]:
        """resourceVersion of every object of these kinds in the namespace, by kind and name."""
        found = self.lab.items(kinds)
        return {f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["resourceVersion"] for item in found}

    def uids(self, training: str, component: str) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.lab.pods(training, component)}
