"""`python -m openclaw_operator`: in a pod with its ServiceAccount, else with $KUBECONFIG.

Environment: OPENCLAW_IMAGE_<COMPONENT>, OPENCLAW_POD_NAME, OPENCLAW_NAMESPACE (of the leader Lease),
OPENCLAW_WATCH_NAMESPACES (comma-separated; empty = all), OPENCLAW_PORT.
"""

import asyncio
import os
import secrets
import socket
from pathlib import Path

import yaml

from openclaw_core import logs, names, tasks
from openclaw_core.kube import Kube
from openclaw_operator import images, service


def main() -> None:
    logs.configure("operator")
    asyncio.run(_run())


async def _run() -> None:
    try:
        options = _options()
    except images.MissingImagesError as error:
        raise SystemExit(f"openclaw_operator: {error}") from error
    stop = tasks.stop_on_signals()
    async with _kube() as kube:
        await service.run(kube, options, stop)


def _kube() -> Kube:
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return Kube.in_cluster()
    file = Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
    return Kube.from_kubeconfig(yaml.safe_load(file.read_text()))


def _options() -> service.Options:
    watched = os.environ.get("OPENCLAW_WATCH_NAMESPACES", "")
    pod = os.environ.get(names.ENV_POD_NAME) or socket.gethostname()
    return service.Options(
        images=images.from_environment(),
        identity=f"{pod}-{secrets.token_hex(4)}",
        lease_namespace=os.environ.get("OPENCLAW_NAMESPACE", "default"),
        namespaces=tuple(name.strip() for name in watched.split(",") if name.strip()),
        port=int(os.environ.get("OPENCLAW_PORT", names.PORT_OPERATOR)),
    )


if __name__ == "__main__":
    main()
