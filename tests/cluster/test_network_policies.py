"""A training's NetworkPolicies with real traffic: pods of every component, and what each may reach.

Needs a cluster whose network enforces policies; `dev/cluster` runs kube-router's firewall for it. No operator takes
part: the policies are those the operator would apply, around pods that only listen.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from openclaw_core import names
from openclaw_operator.builders import metadata
from openclaw_operator.builders.network import Network, policies
from openclaw_operator.training import Training, parse
from tests.cluster.lab import CommandError, Lab, images, kubectl, training, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
Object = dict[str, Any]

PORTS = {
    "gateway": [30000, names.PORT_GATEWAY_INTERNAL],
    "engine": [names.PORT_SGLANG, names.PORT_AGENT],
    "judge": [names.PORT_JUDGE],
    "trainer": [names.PORT_TRAINER, names.PORT_RENDEZVOUS],
    "environment": [names.PORT_ENVIRONMENT],
    "stranger": [8000],
}
LISTEN = """
import socket, sys, threading
def serve(port):
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("0.0.0.0", port)); s.listen()
    while True: s.accept()[0].close()
for p in sys.argv[1:]: threading.Thread(target=serve, args=(int(p),)).start()
"""
KNOCK = """
import socket, sys
answers = {}
for word in sys.argv[1:]:
    host, port = word.rsplit(":", 1)
    try: socket.create_connection((host, int(port)), 2).close(); answers[word] = True
    except OSError: answers[word] = False
import json; print(json.dumps(answers))
"""
# from → what it may reach; everything else it may not.
MAY_REACH = {
    "gateway": {"engine:8000", "stranger:8000"},
    "judge": {"gateway:30000", "gateway:30001", "stranger:8000"},
    "trainer": {"gateway:30000", "gateway:30001", "trainer:8300", "trainer:29500", "stranger:8000"},
    "engine": {"gateway:30000", "stranger:8000"},
    "environment": {"gateway:30000"},
    "stranger": {"gateway:30000"},
    "operator": {
        "gateway:30000", "gateway:30001", "engine:8100", "judge:8200", "trainer:8300", "environment:8400",
        "stranger:8000",
    },
}  # fmt: skip


def pod(name: str, labels: dict[str, str], ports: list[int]) -> Object:
    container = {
        "name": "main",
        "image": images()["operator"],
        "command": ["python", "-c", LISTEN, *map(str, ports or [9])],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    security = {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"terminationGracePeriodSeconds": 0, "securityContext": security, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


def parsed(namespace: str, **spec: Any) -> Training:
    body = training(**spec)
    body["metadata"] |= {"namespace": namespace, "uid": "none", "generation": 1}
    return parse(body)


@pytest.fixture(scope="module")
def walls() -> Iterator[tuple[Lab, dict[str, str]]]:
    """A namespace with a pod of each component behind its policy, a stranger, and an operator elsewhere; their IPs."""
    with Lab.fresh() as lab, Lab.fresh() as ops:
        found = parsed(lab.namespace, environmentHosting={"enabled": True})
        network = Network(True, ops.namespace, (("app.kubernetes.io/name", "openclaw-rl"),))
        for name, ports in PORTS.items():
            labels = metadata.selector("demo", name) if name != "stranger" else {"app": "stranger"}
            lab.apply(pod(name, labels, ports))
        ops.apply(pod("operator", {"app.kubernetes.io/name": "openclaw-rl"}, []))
        for policy in policies(found, names.COMPONENTS, network):
            del policy["metadata"]["ownerReferences"]
            lab.apply(policy)
        kubectl("-n", ops.namespace, "wait", "--for=condition=Ready", "pod", "--all", "--timeout=60s")
        lab.run("wait", "--for=condition=Ready", "pod", "--all", "--timeout=90s", timeout=100)
        addresses = {item["metadata"]["name"]: item["status"]["podIP"] for item in lab.items("pods")}
        yield lab, addresses | {"ops": ops.namespace}


def reached(lab: Lab, addresses: dict[str, str], source: str) -> set[str]:
    wanted = {f"{addresses[name]}:{port}": f"{name}:{port}" for name, ports in PORTS.items() for port in ports}
    where = addresses["ops"] if source == "operator" else lab.namespace
    text = kubectl("-n", where, "exec", source, "--", "python", "-c", KNOCK, *wanted, timeout=90)
    # What a pod says to itself passes no wall.
    return {
        wanted[address]
        for address, answered in json.loads(text).items()
        if answered and (source == "trainer" or not wanted[address].startswith(f"{source}:"))
    }


@pytest.mark.parametrize("source", sorted(MAY_REACH))
def test_pod_reaches_what_it_needs_and_nothing_else(walls: tuple[Lab, dict[str, str]], source: str) -> None:
    lab, addresses = walls

    def as_wanted() -> bool:
        return reached(lab, addresses, source) == MAY_REACH[source]

    try:
        until("the policies are enforced", as_wanted, 40, every=2.0)
    except (AssertionError, CommandError):
        assert reached(lab, addresses, source) == MAY_REACH[source]


def test_environment_reaches_the_addresses_its_training_names(walls: tuple[Lab, dict[str, str]]) -> None:
    lab, addresses = walls
    egress = [{"cidr": f"{addresses['stranger']}/32", "ports": [8000]}]
    found = parsed(lab.namespace, environmentHosting={"enabled": True, "egress": egress})
    (policy,) = policies(found, ("environment",), Network(True, addresses["ops"]))
    del policy["metadata"]["ownerReferences"]
    lab.apply(policy)
    wanted = {"gateway:30000", "stranger:8000"}
    until("the stranger is reached", lambda: reached(lab, addresses, "environment") == wanted, 40, every=2.0)


def test_environment_finds_the_gateway_by_name(walls: tuple[Lab, dict[str, str]]) -> None:
    lab, _ = walls
    ask = "import socket; print(socket.gethostbyname('kubernetes.default.svc.cluster.local'))"

    def answer() -> str:
        try:
            return lab.run("exec", "environment", "--", "python", "-c", ask)
        except CommandError:
            return ""

    until("the name is found", answer, 40, every=2.0)
