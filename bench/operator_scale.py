"""How the operator fares with many trainings: `python bench/operator_scale.py --trainings 1000`, one line of JSON last.

    this process ─create─▶ API server (etcd, controllers of its own) ◀─▶ the operator's process
         └── watches Deployments and trainings: when were all children there, when was each Running?
    kwok: nodes and pods on paper, so that 4 pods a training cost next to nothing

`cpu_s_per_training` is what each program used until the last training had all its children, the cluster's controllers
included: on a machine with too few cores for all of them it says what each would need. `settled_per_s` depends on the
controller manager's own rate (--controller-qps, shown beside it). `requests_per_training` is the API server's count of
everybody's reads and writes until all is settled, `operator_writes_per_training` the operator's part. Idle figures are
taken then. Everything shares this machine's cores, the operator with what serves it.
"""

import argparse
import asyncio
import json
import os
import shutil
import ssl
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from openclaw_cluster import bare
from openclaw_core import names
from openclaw_core.kube import Kube, KubeError
from tests.cluster.conftest import install_crd
from tests.cluster.own_operator import OwnOperator

NAMESPACE, NODES = "scale", 4
COMPONENTS = 4
_AT_ONCE = 16
SETTLED_SEC = 20.0
"""From the last training that came to run until idleness is measured: the last events are still on their way."""
Object = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainings", type=int, default=1000)
    parser.add_argument("--controller-qps", type=int, default=20, help="kube-controller-manager's --kube-api-qps")
    parser.add_argument("--idle-sec", type=float, default=300.0)
    parser.add_argument("--log", type=Path, help="where the operator's log is kept; without it, it goes with the rest")
    parser.add_argument("--limit-sec", type=float, default=3600.0, help="longest wait for everything to settle")
    options = parser.parse_args()
    setup = bare.Options(kwok=True, controller_qps=options.controller_qps)
    with (
        tempfile.TemporaryDirectory(prefix="operator-scale-") as folder,
        bare.control_plane(Path(folder), setup) as plane,
    ):
        install_crd(plane.kubeconfig)
        figures = asyncio.run(_measured(plane, options))
    sys.stdout.write(json.dumps(figures) + "\n")
    return 0


async def _measured(plane: bare.Bare, options: argparse.Namespace) -> Object:
    async with Kube.from_kubeconfig(yaml.safe_load(plane.kubeconfig.read_text())) as kube:
        await _prepare(kube)
        operator = OwnOperator(plane.kubeconfig, plane.folder)
        operator.start()
        try:
            await asyncio.to_thread(operator.until_leading)
            before, asked = _all_cpu(plane, operator), _requests(plane)
            seen = await _filled(kube, options, lambda: _all_cpu(plane, operator))
            spent = {name: seconds - before[name] for name, seconds in seen.cpu.items()}
            await asyncio.sleep(SETTLED_SEC)
            counts = {
                "requests_per_training": round((_requests(plane) - asked) / options.trainings, 1),
                "operator_writes_per_training": round(_writes(operator) / options.trainings, 1),
            }
            idle = await _idle(operator, options.idle_sec)
        finally:
            operator.kill()
            if options.log is not None:
                shutil.copy(operator.log, options.log)
    per = {name: round(seconds / max(1, len(seen.created)), 3) for name, seconds in spent.items()}
    load = round(os.getloadavg()[0], 1)
    return _figures(options, seen) | {"cpu_s_per_training": per, "load_1min": load} | counts | idle


async def _prepare(kube: Kube) -> None:
    for name in (NAMESPACE, "ops"):
        await kube.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    room = {"cpu": "10k", "memory": "10Ti", "pods": "100k"}
    for number in range(NODES):
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"paper-{number}"}}
        await kube.create("/api/v1/nodes", {**node, "status": {"allocatable": room, "capacity": room}})


def training(number: int) -> Object:
    """A training whose pods need no scheduler: their node is named."""
    bound = {"podTemplate": {"spec": {"nodeName": f"paper-{number % NODES}"}}}
    spec = {
        "model": {"path": "base"},
        "policyServing": {"device": "cpu", **bound, "gateway": bound},
        "rewardJudging": bound,
        "policyTraining": {"device": "cpu", **bound},
        "api": {"baseUrl": "http://judge.invalid/v1"},
        "judge": {"model": "rule"},
    }
    metadata = {"name": f"t{number:05d}", "namespace": NAMESPACE}
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": spec}


class Seen:
    """When each training was created, had all its children, and was Running; seconds of one clock."""

    def __init__(self) -> None:
        self.created: dict[str, float] = {}
        self.children: dict[str, float] = {}
        self.settled: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
        """CPU seconds by program, when the last training had all its children."""
        self._deployments: dict[str, set[str]] = {}

    def deployment(self, item: Object) -> None:
        owner = item["metadata"]["labels"][names.LABEL_TRAINING]
        found = self._deployments.setdefault(owner, set())
        found.add(item["metadata"]["name"])
        if len(found) == COMPONENTS:
            self.children.setdefault(owner, time.monotonic())

    def training(self, item: Object) -> None:
        if (item.get("status") or {}).get("phase") == "Running":
            self.settled.setdefault(item["metadata"]["name"], time.monotonic())


async def _filled(kube: Kube, options: argparse.Namespace, cpu: Callable[[], dict[str, float]]) -> Seen:
    """Create them all and wait until they have settled. `cpu`: what everybody has used so far."""
    seen, gate = Seen(), asyncio.Semaphore(_AT_ONCE)

    async def create(number: int) -> None:
        body = training(number)
        async with gate:
            seen.created[body["metadata"]["name"]] = time.monotonic()
            await kube.create(f"/apis/{names.API_VERSION}/namespaces/{NAMESPACE}/{names.PLURAL}", body)

    watches = [
        asyncio.create_task(_watch(kube, "/apis/apps/v1/deployments", seen.deployment)),
        asyncio.create_task(_watch(kube, f"/apis/{names.API_VERSION}/{names.PLURAL}", seen.training)),
    ]
    await asyncio.gather(*(create(number) for number in range(options.trainings)))
    deadline = time.monotonic() + options.limit_sec
    while len(seen.settled) < options.trainings and time.monotonic() < deadline:
        await asyncio.sleep(1)
        if not seen.cpu and len(seen.children) == options.trainings:
            seen.cpu = cpu()
        sys.stderr.write(f"\rchildren {len(seen.children)} settled {len(seen.settled)} of {options.trainings} ")
    for watch in watches:
        watch.cancel()
    return seen


async def _watch(kube: Kube, collection: str, tell: Any) -> None:
    while True:
        listed = await kube.list(collection)
        for item in listed["items"]:
            tell(item)
        try:
            async for kind, item in kube.watch(collection, resource_version=listed["metadata"]["resourceVersion"]):
                if kind in ("ADDED", "MODIFIED"):
                    tell(item)
        except (KubeError, aiohttp.ClientError, TimeoutError):
            continue


async def _idle(operator: OwnOperator, seconds: float) -> Object:
    """CPU and writes of the operator while nothing happens, and its memory afterwards."""
    process = operator.process
    if process is None:
        raise RuntimeError("the operator was not started")
    cpu, writes = _cpu_seconds(process.pid), _writes(operator)
    await asyncio.sleep(seconds)
    if process.poll() is not None:
        raise RuntimeError(f"the operator ended while idle: {operator.log.read_text()[-2000:]}")
    used = _cpu_seconds(process.pid) - cpu
    return {
        "rss_mb": round(_rss_mb(process.pid), 1),
        "idle_cpu_pct": round(100 * used / seconds, 2),
        "idle_writes": round(_writes(operator) - writes),
        "idle_sec": seconds,
    }


def _requests(plane: bare.Bare) -> float:
    """Reads and writes the API server has answered so far, without watches."""
    asked = urllib.request.Request(f"{plane.server}/metrics", headers={"Authorization": f"Bearer {plane.token}"})
    trusted = ssl.create_default_context(cafile=str(plane.folder / "apiserver.crt"))
    with urllib.request.urlopen(asked, context=trusted, timeout=60) as response:
        lines = response.read().decode().splitlines()
    counted = [line for line in lines if line.startswith("apiserver_request_total{") and 'verb="WATCH"' not in line]
    return sum(float(line.split()[-1]) for line in counted)


def _figures(options: argparse.Namespace, seen: Seen) -> Object:
    began = min(seen.created.values())
    took = [1000 * (at - seen.created[name]) for name, at in seen.children.items()]
    deciles = statistics.quantiles(took, n=100) if len(took) > 1 else took * 100
    return {
        "trainings": options.trainings,
        "settled": len(seen.settled),
        "trainings_per_s": _rate(seen.children, began),
        "settled_per_s": _rate(seen.settled, began),
        "controller_qps": options.controller_qps,
        "apply_to_children_ms_p50": round(deciles[49]),
        "apply_to_children_ms_p99": round(deciles[98]),
        "cores": os.cpu_count(),
    }


def _rate(times: dict[str, float], began: float) -> float:
    return round(len(times) / (max(times.values()) - began), 2) if times else 0.0


def _all_cpu(plane: bare.Bare, operator: OwnOperator) -> dict[str, float]:
    """CPU seconds so far of the operator, and of each program that serves it."""
    running = {"operator": operator.process, **plane.running}
    found = {name: _cpu_seconds(process.pid) for name, process in running.items() if process is not None}
    return found | {"bench": time.process_time()}


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def _writes(operator: OwnOperator) -> float:
    lines = operator.get("/metrics")[1].splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("openclawrl_operator_writes{"))


if __name__ == "__main__":
    sys.exit(main())
