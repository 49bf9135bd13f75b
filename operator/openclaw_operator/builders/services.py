"""Services of a training. Engines get a headless one with not-ready addresses: the gateway probes them itself."""

from typing import Any

from openclaw_core import names
from openclaw_operator.builders import metadata, ranks
from openclaw_operator.training import Training

Object = dict[str, Any]


def services(training: Training, *, groups: bool = False) -> list[Object]:
    """`groups`: the trainer's pods are named by a LeaderWorkerSet, not by a Service of ours."""
    public = training.spec.policy_serving.port
    built = [
        _service(training, names.ENGINE, {"sglang": names.PORT_SGLANG, "agent": names.PORT_AGENT}, headless=True),
        _service(training, names.GATEWAY, {"http": public, "internal": names.PORT_GATEWAY_INTERNAL}),
        _service(training, names.JUDGE, {"http": names.PORT_JUDGE}),
        _service(training, names.TRAINER, {"http": names.PORT_TRAINER}),
    ]
    if training.spec.reward_judging.deployed is not None:
        built.append(_service(training, names.JUDGE_MODEL, {"http": names.PORT_SGLANG}))
    hosting = training.spec.environment_hosting
    if hosting.enabled and hosting.kind != "custom":
        built.append(_service(training, names.ENVIRONMENT, {"http": names.PORT_ENVIRONMENT}))
    return [*built, *ranks.services(training, groups=groups)]


def _service(training: Training, component: str, ports: dict[str, int], *, headless: bool = False) -> Object:
    spec: Object = {
        "selector": metadata.selector(training.name, component),
        "ports": [
            {"name": name, "port": port, "targetPort": port, "protocol": "TCP", **_protocol(name)}
            for name, port in ports.items()
        ],
    }
    if headless:
        spec |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    manifest = metadata.child(training, "v1", "Service", names.component(training.name, component), component)
    return {**manifest, "spec": spec}


def _protocol(name: str) -> dict[str, str]:
    return {"appProtocol": "http"} if name == "http" else {}
