"""What should run: every configuration file and every process, in starting order. Pure but for reading link targets."""

import hashlib
import os
import sys
from dataclasses import replace
from pathlib import Path

from openclaw_cluster import control_plane, node, registry
from openclaw_cluster.layout import Layout
from openclaw_cluster.processes import Process

PACKAGE_PARENT = Path(__file__).parent.parent


def configuration(layout: Layout, pause_image: str) -> dict[Path, str]:
    return {
        layout.config / "containerd.toml": node.containerd_config(layout, pause_image),
        layout.config / "cni" / "10-openclaw.conflist": node.cni_config(layout),
        layout.config / "kubelet.yaml": node.kubelet_config(layout),
        layout.config / "kube-proxy.yaml": node.kube_proxy_config(layout),
        layout.config / "registry.yaml": registry.config(layout),
        registry.hosts_path(layout): registry.hosts_toml(),
    }


def plan(layout: Layout, files: dict[Path, str]) -> list[Process]:
    """The order matters twice: each starts when those before it are ready, and they end in reverse."""
    processes = [
        control_plane.etcd(layout),
        registry.registry(layout),
        node.containerd(layout),
        control_plane.apiserver(layout),
        control_plane.controller_manager(layout),
        control_plane.scheduler(layout),
        node.kubelet(layout),
        node.kube_proxy(layout),
        node.kube_router(layout),
        provisioner(layout),
    ]
    return [replace(process, configuration=_fingerprint(process, files)) for process in processes]


def provisioner(layout: Layout) -> Process:
    arguments = ("--kubeconfig", str(layout.kubeconfig), "--volumes", str(layout.volumes))
    argv = (sys.executable, "-m", "openclaw_cluster.provisioner", *arguments)
    return Process("provisioner", argv, env=(("PYTHONPATH", str(PACKAGE_PARENT)),))


def _fingerprint(process: Process, files: dict[Path, str]) -> str:
    """Changes with the process's configuration files and with the build its program's link points to."""
    digest = hashlib.sha256()
    for path, text in sorted(files.items()):
        if any(str(path) in word for word in process.argv):
            digest.update(text.encode())
    if os.path.islink(process.argv[0]):
        digest.update(os.readlink(process.argv[0]).encode())
    return digest.hexdigest()[:12]
