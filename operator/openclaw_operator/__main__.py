"""`python -m openclaw_operator`: in a pod with its ServiceAccount, else with $KUBECONFIG.

Environment: OPENCLAW_IMAGE_<COMPONENT>, OPENCLAW_POD_NAME, OPENCLAW_NAMESPACE (of the leader Lease),
OPENCLAW_WATCH_NAMESPACES (comma-separated; empty = all), OPENCLAW_PORT, OPENCLAW_NETWORK_POLICIES (on: make them),
OPENCLAW_OPERATOR_LABELS (key=value,…: of the operator's own pods), OPENCLAW_METRICS_NAMESPACES (of scrapers).
"""

import asyncio
import gc
import os
import secrets
import socket
from pathlib import Path

import yaml

from openclaw_core import logs, names, tasks
from openclaw_core.kube import Kube
from openclaw_operator import images, service
from openclaw_operator.builders.network import Network

YOUNG_OBJECTS = 50_000
"""Objects made before a collection. Python's own 700 spent a quarter of the operator's time at a thousand trainings on
going through what stays, and let objects grow old that only wait for an answer."""


def main() -> None:
    logs.configure("operator")
    gc.set_threshold(YOUNG_OBJECTS, 20, 50)
    asyncio.run(_run())


async def _run() -> None:
    try:
        options = _options()
    except images.MissingImagesError as error:
        raise SystemExit(f"openclaw_operator: {error}") from error
    stop = tasks.stop_on_signals()
    async with _kube() as kube:
        await service.run(kube, _kube, options, stop)


def _kube() -> Kube:
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return Kube.in_cluster()
    file = Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
    return Kube.from_kubeconfig(yaml.safe_load(file.read_text()))


def _options() -> service.Options:
    pod = os.environ.get(names.ENV_POD_NAME) or socket.gethostname()
    return service.Options(
        images=images.from_environment(),
        identity=f"{pod}-{secrets.token_hex(4)}",
        lease_namespace=os.environ.get("OPENCLAW_NAMESPACE", "default"),
        namespaces=_words("OPENCLAW_WATCH_NAMESPACES"),
        port=int(os.environ.get("OPENCLAW_PORT", names.PORT_OPERATOR)),
        network=_network(),
    )


def _network() -> Network:
    pairs = (word.partition("=") for word in _words("OPENCLAW_OPERATOR_LABELS"))
    return Network(
        enforced=os.environ.get("OPENCLAW_NETWORK_POLICIES", "off") == "on",
        operator_namespace=os.environ.get("OPENCLAW_NAMESPACE", "default"),
        operator_labels=tuple((key, value) for key, _, value in pairs),
        metrics_namespaces=_words("OPENCLAW_METRICS_NAMESPACES"),
    )


def _words(variable: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in os.environ.get(variable, "").split(",") if word.strip())


if __name__ == "__main__":
    main()
