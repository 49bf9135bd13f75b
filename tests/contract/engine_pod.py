"""Pods of the real engine image with a tiny random model, under the restricted Pod Security Standard.

Two shapes: SGLang alone with an admin key the test knows, and the whole container with its sync agent. Both get their
weights from an init container that runs `tests/fakes/tiny_policy.py` in the same image.
"""

import json
import os
import re
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openclaw_core import names
from openclaw_core.config.components import EngineConfig, engine_config
from openclaw_core.config.spec import TrainingSpec
from openclaw_engine import command

ADMIN_KEY = "known-to-the-contract-test"
AGENT_TOKEN = "agent-token-of-the-contract-test"
READY_SEC = 400.0
_ROOT = Path(__file__).resolve().parents[2]
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "openclaw-training"
_USER = 10001


class ClusterError(AssertionError):
    """The cluster is not there, or the pod did not come up; the message holds what it said."""


def cpu_config(*, lora: dict[str, Any] | None = None, **serving: Any) -> EngineConfig:
    """Configuration of a CPU engine whose base model is `base` on the volume; `lora` as in the resource."""
    spec = {
        "model": {"path": "base"},
        "policyServing": {"device": "cpu", **serving},
        "policyTraining": {"dtype": "float32"} | ({"lora": lora} if lora else {}),
        "api": {"baseUrl": "http://judge/v1"},
        "judge": {"model": "judge"},
    }
    return engine_config("contract", "contract", TrainingSpec.model_validate(spec))


def image() -> str:
    """The engine image under test: $ENGINE_IMAGE, else the one `make images` pushed."""
    if named := os.environ.get("ENGINE_IMAGE"):
        return named
    path = _CACHE / "images" / "tags.json"
    try:
        return str(json.loads(path.read_text())["engine"])
    except (OSError, KeyError) as error:
        raise ClusterError("the engine image is not built; run `make cluster-up images` first") from error


def kubectl(*arguments: str, stdin: str | None = None, timeout: float = 60.0) -> str:
    done = subprocess.run(
        [*_kubectl(), *arguments], input=stdin, capture_output=True, text=True, timeout=timeout, check=False
    )
    if done.returncode != 0:
        raise ClusterError(f"kubectl {' '.join(arguments)} failed: {done.stderr.strip()}")
    return done.stdout


def _kubectl() -> list[str]:
    base = [str(_ROOT / ".venv" / "bin" / "kubectl")]
    if context := os.environ.get("KUBECONTEXT"):
        return [*base, "--context", context]
    return [*base, "--kubeconfig", os.environ.get("KUBECONFIG") or str(_CACHE / "cluster" / "kubeconfig")]


@contextmanager
def namespace() -> Iterator[str]:
    """A namespace that enforces the restricted standard, with the scripts in it; gone afterwards."""
    name = f"contract-{uuid.uuid4().hex[:8]}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    scripts = {
        file: (_ROOT / "tests" / "fakes" / file).read_text() for file in ("tiny_policy.py", "weight_versions.py")
    }
    _apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    try:
        _apply(_config_map(name, "scripts", scripts))
        yield name
    finally:
        kubectl("delete", "namespace", name, "--wait=false")


def apply_agent_config(space: str, config: EngineConfig) -> None:
    _apply(_config_map(space, "engine", {"config.json": config.model_dump_json(by_alias=True)}))


@dataclass(frozen=True)
class EnginePod:
    """A running pod and local addresses of its two ports."""

    space: str
    name: str
    sglang: str
    agent: str
    seconds_to_ready: float

    def execute(self, *words: str, timeout: float = 120.0) -> str:
        return kubectl("exec", "-n", self.space, self.name, "-c", "engine", "--", *words, timeout=timeout)

    def log(self) -> str:
        """What the engine's container has said since its last start."""
        return kubectl("logs", self.name, "-n", self.space, "-c", "engine")

    def wait_restarted(self) -> None:
        """Return when the engine container has been started a second time and is ready again."""
        deadline = time.monotonic() + READY_SEC
        while time.monotonic() < deadline:
            status = _status(self.space, self.name)
            if _restarts(status) > 0 and _is_ready(status):
                return
            time.sleep(1.0)
        raise ClusterError(f"pod {self.name} did not come back: {json.dumps(status)[-800:]}")

    def versions(self) -> dict[str, str]:
        """Versions on the volume by directory, as the init container wrote them."""
        found = self.execute("cat", f"{names.WEIGHTS_DIR}/versions.json")
        return {str(key): str(value) for key, value in json.loads(found).items()}


@contextmanager
def sglang_alone(space: str) -> Iterator[EnginePod]:
    """SGLang on the base model, started as the agent starts it, with ADMIN_KEY."""
    config = cpu_config()
    words = command.arguments(config, command.base_weights(config.model, "0-00000000"))
    line = f"echo {ADMIN_KEY} | exec python3 -m openclaw_engine.launch {' '.join(words)}"
    environment = command.environment(config, {"PYTHONPATH": "/app"})
    probe = {"httpGet": {"path": "/ready", "port": names.PORT_SGLANG}, "periodSeconds": 1, "failureThreshold": 600}
    with _running(_pod(space, "sglang", ["sh", "-c", line], environment, probe)) as pod:
        yield pod


@contextmanager
def with_agent(space: str, target: str, shape: str = "tiny", name: str = "engine") -> Iterator[EnginePod]:
    """The container as the operator runs it, its target a directory of the volume; `apply_agent_config` comes first.

    `shape` of the model: tiny or 135M. `name` of the pod: each has its own volume, with the same bytes.
    """
    environment = {names.ENV_AGENT_TOKEN: AGENT_TOKEN}
    probe = {"httpGet": {"path": "/readyz", "port": names.PORT_AGENT}, "periodSeconds": 1, "failureThreshold": 600}
    with _running(_pod(space, name, None, environment, probe, target, shape)) as pod:
        yield pod


def _pod(
    space: str,
    name: str,
    line: list[str] | None,
    environment: dict[str, str],
    probe: dict[str, Any],
    target: str = "base",
    shape: str = "tiny",
) -> dict[str, Any]:
    security = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    weights = {"name": "weights", "mountPath": names.WEIGHTS_DIR}
    aim = {"name": "target", "mountPath": str(Path(names.TARGET_FILE).parent)}
    temporary = {"name": "tmp", "mountPath": "/tmp"}
    resources = {"requests": {"cpu": "300m", "memory": "2Gi"}}  # without, a busy node starves the pod
    variables = [{"name": key, "value": value} for key, value in {"HOME": "/tmp", **environment}.items()]
    make = {
        "name": "weights",
        "image": image(),
        "command": ["python3", "/scripts/tiny_policy.py", names.WEIGHTS_DIR, names.TARGET_FILE, target, shape],
        "env": [{"name": "HOME", "value": "/tmp"}, {"name": "OMP_NUM_THREADS", "value": "1"}],
        "resources": resources,
        "securityContext": security,
        "volumeMounts": [weights, aim, temporary, {"name": "scripts", "mountPath": "/scripts"}],
    }
    serve = {
        "name": "engine",
        "image": image(),
        **({"command": line} if line else {}),
        "env": variables,
        "readinessProbe": probe,
        "resources": resources,
        "securityContext": security,
        "volumeMounts": [
            {**weights, "readOnly": True},
            temporary,
            {"name": "shm", "mountPath": "/dev/shm"},
            {"name": "config", "mountPath": "/etc/openclaw"},
            {**aim, "readOnly": True},
        ],
    }
    volumes: list[dict[str, Any]] = [
        {"name": "weights", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "512Mi"}},
        {"name": "scripts", "configMap": {"name": "scripts"}},
        {"name": "config", "configMap": {"name": "engine", "optional": True}},
        {"name": "target", "emptyDir": {}},
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": space},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 20,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": _USER,
                "runAsGroup": _USER,
                "fsGroup": _USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "initContainers": [make],
            "containers": [serve],
            "volumes": volumes,
        },
    }


@contextmanager
def _running(manifest: dict[str, Any]) -> Iterator[EnginePod]:
    space, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
    _apply(manifest)
    try:
        _wait_ready(space, name)
        with _forwarded(space, name) as ports:
            sglang, agent = (f"http://127.0.0.1:{ports[port]}" for port in (names.PORT_SGLANG, names.PORT_AGENT))
            yield EnginePod(space, name, sglang, agent, _seconds_to_ready(space, name))
    finally:
        kubectl("delete", "pod", name, "-n", space, "--grace-period=5", timeout=90.0)


def _wait_ready(space: str, name: str) -> None:
    deadline = time.monotonic() + READY_SEC
    while time.monotonic() < deadline:
        status = _status(space, name)
        if _is_ready(status):
            return
        if status.get("phase") in ("Failed", "Succeeded") or _restarts(status) > 0:
            break
        time.sleep(1.0)
    said = [_logs(space, name, container) for container in ("weights", "engine")]
    raise ClusterError(f"pod {name} did not become ready: {json.dumps(status)[-800:]}\n" + "\n".join(said))


def _status(space: str, name: str) -> dict[str, Any]:
    status: dict[str, Any] = json.loads(kubectl("get", "pod", name, "-n", space, "-o", "json"))["status"]
    return status


def _is_ready(status: dict[str, Any]) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", []))


def _restarts(status: dict[str, Any]) -> int:
    states = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    return sum(int(state["restartCount"]) for state in states)


def _logs(space: str, name: str, container: str) -> str:
    for previous in (["--previous"], []):
        try:
            return kubectl("logs", name, "-n", space, "-c", container, "--tail=40", *previous)
        except ClusterError:
            continue
    return f"no log of {container}"


def _seconds_to_ready(space: str, name: str) -> float:
    """From the engine container's start to the pod's Ready condition."""
    moments = kubectl(
        *("get", "pod", name, "-n", space, "-o"),
        "jsonpath={.status.containerStatuses[0].state.running.startedAt} "
        '{.status.conditions[?(@.type=="Ready")].lastTransitionTime}',
    ).split()
    began, ready = (time.mktime(time.strptime(moment, "%Y-%m-%dT%H:%M:%SZ")) for moment in moments)
    return ready - began


@contextmanager
def _forwarded(space: str, name: str) -> Iterator[dict[int, int]]:
    line = [*_kubectl(), "port-forward", "-n", space, f"pod/{name}", f":{names.PORT_SGLANG}", f":{names.PORT_AGENT}"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            ports: dict[int, int] = {}
            while len(ports) < 2:
                text = process.stdout.readline()
                if not text:
                    raise ClusterError(f"kubectl port-forward to {name} ended")
                if found := re.match(r"Forwarding from 127\.0\.0\.1:(\d+) -> (\d+)", text):
                    ports[int(found.group(2))] = int(found.group(1))
            yield ports
        finally:
            process.terminate()


def _config_map(space: str, name: str, data: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": space}, "data": data}


def _apply(manifest: dict[str, Any]) -> None:
    kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
