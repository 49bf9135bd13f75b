"""A namespace of the real cluster with the installed operator, and trainings whose pods are light stand-ins.

The stand-ins run `tests/cluster/stand_in.py` in the operator's image: they answer probes, and as an engine they speak
the sync agent's part, so the operator can be tested without a model.
"""

import json
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from openclaw_core import names

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "openclaw-training"
CHART = ROOT / "charts" / "openclaw-rl"
OPERATOR_NAMESPACE, RELEASE = "openclaw-system", "openclaw"
STAND_IN = Path(__file__).with_name("stand_in.py")
Object = dict[str, Any]


class CommandError(AssertionError):
    """kubectl or helm refused; the message holds its words."""


def images() -> dict[str, str]:
    """References `make images` pushed, by component."""
    found: dict[str, str] = json.loads((CACHE / "images" / "tags.json").read_text())
    return found


def kubectl(*arguments: str, stdin: str | None = None, timeout: float = 60.0, kubeconfig: Path | None = None) -> str:
    """Output of kubectl; CommandError with its words. Without `kubeconfig`: the cluster under test."""
    context = ["--context", os.environ["KUBECONTEXT"]] if os.environ.get("KUBECONTEXT") else []
    where = ["--kubeconfig", str(kubeconfig)] if kubeconfig else context
    return _run([str(ROOT / ".venv/bin/kubectl"), *where, *arguments], stdin, timeout)


def helm(*arguments: str, kubeconfig: Path, timeout: float = 120.0) -> str:
    """Output of helm against a control plane of the test's own; CommandError with its words."""
    tool = str(CACHE / "cluster" / "bin" / "helm")
    return _run([tool, "--kubeconfig", str(kubeconfig), *arguments], None, timeout)


def release_helm() -> list[str]:
    """Command line of helm for the cluster under test."""
    context = os.environ.get("KUBECONTEXT")
    tool = shutil.which("helm") if context else None
    return [tool or str(CACHE / "cluster" / "bin" / "helm"), *(["--kube-context", context] if context else [])]


def helm_test() -> str:
    """`helm test` of the installed release; CommandError when it fails."""
    return _run([*release_helm(), "test", RELEASE, "--namespace", OPERATOR_NAMESPACE, "--timeout=3m"], None, 200.0)


def install_operator() -> None:
    """helm upgrade --install of this chart with the newest operator image.

    A release that is there keeps the component images it was given, so a training beside the tests is not rolled.
    """
    helm = release_helm()
    there = RELEASE in _run([*helm, "list", "--namespace", OPERATOR_NAMESPACE, "--short"], None, 60.0).split()
    chosen = {name: image for name, image in images().items() if name == "operator" or not there}
    values = [word for name, image in chosen.items() if name != "quickstart" for word in _set_image(name, image)]
    _run(
        [
            *helm,
            *("upgrade", "--install", RELEASE, str(ROOT / "charts" / "openclaw-rl")),
            *("--namespace", OPERATOR_NAMESPACE, "--create-namespace", "--take-ownership", "--wait", "--timeout=5m"),
            *(["--reset-then-reuse-values"] if there else []),
            *values,
        ],
        None,
        330.0,
    )


def _set_image(component: str, image: str) -> list[str]:
    return ["--set", f"images.{component}={image}"]


def environment() -> dict[str, str]:
    """Of kubectl and helm: the embedded cluster's kubeconfig unless a context is named."""
    embedded = {} if os.environ.get("KUBECONTEXT") else {"KUBECONFIG": str(CACHE / "cluster" / "kubeconfig")}
    return dict(os.environ) | embedded


def _run(line: list[str], stdin: str | None, timeout: float) -> str:
    done = subprocess.run(
        line,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=environment(),
    )
    if done.returncode != 0:
        raise CommandError(f"{Path(line[0]).name} {' '.join(line[1:4])}…: {done.stderr.strip()}")
    return done.stdout


def until(what: str, true: Callable[[], Any], seconds: float = 60.0, every: float = 0.3) -> Any:
    """Wait for a truthy answer and return it; AssertionError naming `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = true()
        if answer:
            return answer
        time.sleep(every)
    raise AssertionError(f"{what}: not within {seconds:.0f} s")


def until_established(definition: str, kubeconfig: Path) -> None:
    """Wait for a CRD, by its name. Both `kubectl wait` and a jsonpath give up on one that has no conditions yet."""

    def established() -> bool:
        found = json.loads(kubectl("get", "crd", definition, "-o", "json", kubeconfig=kubeconfig))
        conditions = found.get("status", {}).get("conditions") or []
        return any((one["type"], one["status"]) == ("Established", "True") for one in conditions)

    until(f"{definition} is established", established, 60)


@dataclass(frozen=True)
class Lab:
    """One namespace."""

    namespace: str
    kubeconfig: Path | None = None
    """Of a control plane of the test's own; None = the cluster under test."""

    @classmethod
    @contextmanager
    def fresh(cls, kubeconfig: Path | None = None) -> "Iterator[Lab]":
        found = cls(f"lab-{uuid.uuid4().hex[:8]}", kubeconfig)
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": found.namespace, "labels": labels}}
        kubectl("apply", "-f", "-", stdin=json.dumps(body), kubeconfig=kubeconfig)
        try:
            yield found
        finally:
            kubectl("delete", "namespace", found.namespace, "--wait=false", kubeconfig=kubeconfig)

    def run(self, *arguments: str, stdin: str | None = None, timeout: float = 60.0) -> str:
        return kubectl("-n", self.namespace, *arguments, stdin=stdin, timeout=timeout, kubeconfig=self.kubeconfig)

    def apply(self, body: Object) -> None:
        self.run("apply", "-f", "-", stdin=yaml.safe_dump(body))

    def get(self, kind: str, name: str) -> Object:
        """The object, or {} when it is not there."""
        text = self.run("get", kind, name, "--ignore-not-found", "-o", "json")
        return json.loads(text) if text.strip() else {}

    def items(self, kind: str, selector: str = "") -> list[Object]:
        chosen = ["-l", selector] if selector else []
        found: list[Object] = json.loads(self.run("get", kind, *chosen, "-o", "json"))["items"]
        return found

    def patch(self, kind: str, name: str, body: Object, *more: str) -> None:
        self.run("patch", kind, name, "--type=merge", "-p", json.dumps(body), *more)

    def secret(self, name: str, **values: str) -> None:
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": values}
        self.apply(body)

    def status(self, training: str) -> Object:
        found: Object = self.get(names.PLURAL, training).get("status", {})
        return found

    def condition(self, training: str, kind: str) -> Object:
        return next((item for item in self.status(training).get("conditions", []) if item["type"] == kind), {})

    def events(self, training: str) -> list[Object]:
        chosen = f"involvedObject.kind={names.KIND},involvedObject.name={training}"
        found: list[Object] = json.loads(self.run("get", "events", "--field-selector", chosen, "-o", "json"))["items"]
        return found

    def pods(self, training: str, component: str) -> list[Object]:
        found = self.items("pods", f"{names.LABEL_TRAINING}={training},{names.LABEL_COMPONENT}={component}")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def until_phase(self, training: str, phase: str, seconds: float = 120.0) -> None:
        until(
            f"{training} is {phase} (is {self.status(training).get('phase')}: {self.status(training).get('message')})",
            lambda: self.status(training).get("phase") == phase,
            seconds,
        )


def stand_in(container: str, *ports: int) -> Object:
    """podTemplate that runs the stand-in instead of the component's own process."""
    command = ["python", "-c", STAND_IN.read_text(), *(str(port) for port in ports)]
    image = images()["operator"]
    quick = {"startupProbe": {"periodSeconds": 1}, "readinessProbe": {"periodSeconds": 1}}
    containers = [{"name": container, "image": image, "command": command, **quick}]
    return {"spec": {"terminationGracePeriodSeconds": 1, "containers": containers}}


def training(name: str = "demo", **spec: Any) -> Object:
    """A training of stand-ins; `spec` replaces whole sections."""
    gateway = {"podTemplate": stand_in("gateway", 30000, names.PORT_GATEWAY_INTERNAL)}
    engine = stand_in("engine", names.PORT_AGENT)
    small = {"size": "1Mi"}
    sections: Object = {
        "model": {"path": "base"},
        "policyServing": {"device": "cpu", "pauseTimeoutSec": 20, "podTemplate": engine, "gateway": gateway},
        "rewardJudging": {"podTemplate": stand_in("judge", names.PORT_JUDGE)},
        "policyTraining": {"device": "cpu", "podTemplate": stand_in("trainer", names.PORT_TRAINER)},
        "api": {"baseUrl": "http://judge.invalid/v1"},
        "judge": {"model": "rule"},
        "storage": {"weights": small, "experience": small},
    }
    metadata = {"name": name}
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": sections | spec}
