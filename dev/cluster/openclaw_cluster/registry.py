"""The local image registry: Debian's docker-registry on a loopback port, and containerd's way to it."""

from pathlib import Path
from typing import Any

import yaml

from openclaw_cluster import addresses
from openclaw_cluster.layout import Layout
from openclaw_cluster.processes import Process


def config(layout: Layout) -> str:
    document: dict[str, Any] = {
        "version": 0.1,
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {
            "filesystem": {"rootdirectory": str(layout.registry)},
            "delete": {"enabled": True},
            "cache": {"blobdescriptor": "inmemory"},
        },
        "http": {"addr": addresses.REGISTRY},
    }
    return yaml.safe_dump(document, sort_keys=False)


def hosts_toml() -> str:
    """For `certs.d/<registry>/hosts.toml`: without it containerd would insist on TLS."""
    return f"""\
server = "http://{addresses.REGISTRY}"

[host."http://{addresses.REGISTRY}"]
  capabilities = ["pull", "resolve"]
"""


def hosts_path(layout: Layout) -> Path:
    return layout.config / "certs.d" / addresses.REGISTRY / "hosts.toml"


def registry(layout: Layout) -> Process:
    arguments = ("docker-registry", "serve", str(layout.config / "registry.yaml"))
    return Process("registry", arguments, ready=f"tcp:{addresses.REGISTRY}")
