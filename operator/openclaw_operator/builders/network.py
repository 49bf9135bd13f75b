"""NetworkPolicies of a training: who may connect to which port of its pods, and where its environment may go.

    anyone ─▶ gateway:public     judge · trainer · environment · operator ─▶ gateway:internal
    gateway ─▶ engine:sglang     operator ─▶ engine:agent, judge, trainer, environment     trainer ◀─▶ trainer
    trainer ◀─▶ engine ◀─▶ engine, with storage.weights.transfer distributed
    judge ─▶ judge model, where it is served here
    environment ─▶ gateway, DNS, spec.environmentHosting.egress; nowhere else

The kubelet's probes come from the node, which no policy stops. Scrapers are let in from the namespaces the chart names.
Without an enforcer in the cluster's network the policies do nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from openclaw_core import names
from openclaw_operator.builders import metadata
from openclaw_operator.training import Training

Object = dict[str, Any]
_API = "networking.k8s.io/v1"
_DNS_PORTS = (53, 5353)
"""Of DNS pods, behind their Service; OpenShift's listen on 5353."""


@dataclass(frozen=True)
class Network:
    """What the policies must know of the installation."""

    enforced: bool = False
    """False: no policies are made, and those there are pruned."""
    operator_namespace: str = ""
    operator_labels: tuple[tuple[str, str], ...] = ()
    """Labels that pick the operator's pods. Empty: every pod of its namespace."""
    metrics_namespaces: tuple[str, ...] = ()
    """Namespaces whose pods may scrape every port with /metrics."""


def policies(training: Training, components: Sequence[str], network: Network) -> list[Object]:
    """One policy per component; none where the installation wants none."""
    if not network.enforced:
        return []
    return [_policy(training, component, network) for component in components]


def _policy(training: Training, component: str, network: Network) -> Object:
    spec: Object = {
        "podSelector": {"matchLabels": metadata.selector(training.name, component)},
        "policyTypes": ["Ingress"],
        "ingress": _ingress(training, component, network),
    }
    if component == names.ENVIRONMENT:
        spec |= {"policyTypes": ["Ingress", "Egress"], "egress": _egress(training)}
    name = names.component(training.name, component)
    return {**metadata.child(training, _API, "NetworkPolicy", name, component), "spec": spec}


def _ingress(training: Training, component: str, network: Network) -> list[Object]:
    operator, scrapers = [_operator(network)], [_namespace(name) for name in network.metrics_namespaces]
    own = {name: _pods(training, name) for name in names.WORKLOADS}
    public = training.spec.policy_serving.port
    broadcast = training.spec.broadcasts
    no_ports: list[int] = []  # = all
    # (peers, ports); None = from anywhere. Collectives choose their ports.
    rules: dict[str, list[tuple[list[Object] | None, list[int]]]] = {
        names.GATEWAY: [
            (None, [public]),
            ([own[names.JUDGE], own[names.TRAINER], own[names.ENVIRONMENT], *operator], [names.PORT_GATEWAY_INTERNAL]),
        ],
        names.ENGINE: [
            ([own[names.GATEWAY]], [names.PORT_SGLANG]),
            (operator, [names.PORT_AGENT]),
            *([([own[names.TRAINER], own[names.ENGINE]], no_ports)] if broadcast else []),
        ],
        names.JUDGE: [(operator, [names.PORT_JUDGE])],
        names.JUDGE_MODEL: [([own[names.JUDGE]], [names.PORT_SGLANG])],
        names.TRAINER: [
            (operator, [names.PORT_TRAINER]),
            ([own[names.TRAINER], *([own[names.ENGINE]] if broadcast else [])], no_ports),
        ],
        names.ENVIRONMENT: [(operator, [names.PORT_ENVIRONMENT])],
    }
    scraped = {
        names.ENGINE: [names.PORT_SGLANG, names.PORT_AGENT],
        names.JUDGE: [names.PORT_JUDGE],
        names.JUDGE_MODEL: [names.PORT_SGLANG],
        names.TRAINER: [names.PORT_TRAINER],
        names.ENVIRONMENT: [names.PORT_ENVIRONMENT],
    }.get(component)
    chosen = [*rules[component], *([(scrapers, scraped)] if scrapers and scraped else [])]
    return [_rule("from", peers, ports) for peers, ports in chosen]


def _egress(training: Training) -> list[Object]:
    public = training.spec.policy_serving.port
    dns = [{"protocol": protocol, "port": port} for port in _DNS_PORTS for protocol in ("UDP", "TCP")]
    extra = [
        _rule("to", [{"ipBlock": {"cidr": egress.cidr}}], egress.ports)
        for egress in training.spec.environment_hosting.egress
    ]
    return [_rule("to", [_pods(training, names.GATEWAY)], [public]), {"ports": dns}, *extra]


def _rule(direction: str, peers: list[Object] | None, ports: Iterable[int]) -> Object:
    """No peers = anyone, no ports = all."""
    listed = [{"protocol": "TCP", "port": port} for port in ports]
    return ({direction: peers} if peers is not None else {}) | ({"ports": listed} if listed else {})


def _pods(training: Training, component: str) -> Object:
    return {"podSelector": {"matchLabels": metadata.selector(training.name, component)}}


def _namespace(name: str) -> Object:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}


def _operator(network: Network) -> Object:
    labels = dict(network.operator_labels)
    return _namespace(network.operator_namespace) | ({"podSelector": {"matchLabels": labels}} if labels else {})
