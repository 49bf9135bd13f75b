"""Brings the cluster up, from nothing or from any half state; running it again changes nothing."""

import os
import signal
from typing import Any

from openclaw_cluster import (
    addresses,
    api,
    builds,
    cgroups,
    coredns,
    daemon,
    desired,
    errors,
    firewall,
    images,
    network,
    packages,
    pki,
    preflight,
    processes,
    shell,
    storage,
    sweep,
)
from openclaw_cluster.console import Steps, say
from openclaw_cluster.layout import Layout

START_TIMEOUT_SEC = 90
NODE_TIMEOUT_SEC = 90
DNS_TIMEOUT_SEC = 120
PROBE_TIMEOUT_SEC = 60
PROBE_POD = "openclaw-probe"
PROBE_PATH = f"/api/v1/namespaces/kube-system/pods/{PROBE_POD}"


def up(layout: Layout) -> None:
    preflight.check(layout)
    absent, unbuilt = packages.missing(), builds.missing(layout)
    steps = Steps(total=5 + bool(absent) + len(unbuilt))
    if absent:
        with steps.step(f"Install Debian packages ({', '.join(absent)})"):
            packages.install(absent)
    for build in unbuilt:
        with steps.step(f"Build {build.program} {build.version} (once; minutes on two cores)"):
            builds.make(layout, build)
    with steps.step("Certificates, configuration and network"):
        wanted = _prepare(layout)
    with steps.step("Start the processes"):
        _start(layout)
        client = api.Api(layout.kubeconfig)
        hint = f"See {layout.logs}/*.log."
        shell.wait_for("the API server to answer", lambda: _ready(client), START_TIMEOUT_SEC, hint)
    with steps.step("Wait for the node"):
        images.load(layout, wanted)
        shell.wait_for("the node to be Ready", lambda: _node_ready(client), NODE_TIMEOUT_SEC, hint)
    with steps.step("Cluster DNS and the default StorageClass"):
        for manifest in [*coredns.manifests(wanted[1].reference), storage.storage_class()]:
            client.apply(manifest)
        shell.wait_for("CoreDNS to be ready", lambda: _dns_ready(client), DNS_TIMEOUT_SEC, hint)
    with steps.step("Reach a Service by its DNS name from a pod"):
        _probe(client, wanted[0].reference)
    say(f"The cluster is up after {steps.elapsed():.1f} s. Its kubeconfig: {layout.kubeconfig}")


def _prepare(layout: Layout) -> list[images.Image]:
    """Everything that must exist before the first process; returns the images the node needs."""
    if not daemon.running(layout):
        sweep.clean(layout)
    for directory in (layout.run, layout.logs, layout.volumes, layout.registry, layout.kubelet):
        directory.mkdir(parents=True, exist_ok=True)
    layout.etcd.mkdir(parents=True, exist_ok=True, mode=0o700)
    builds.link(layout)
    pki.ensure(layout)
    firewall.remember(layout)
    network.up(layout)
    cgroups.make()
    wanted = [images.image(layout, "probe"), images.image(layout, "coredns")]
    files = desired.configuration(layout, wanted[0].reference)
    for path, text in files.items():
        shell.write_if_changed(path, text, 0o644)
    shell.write_if_changed(layout.plan, processes.dump(desired.plan(layout, files)))
    return wanted


def _start(layout: Layout) -> None:
    if pid := daemon.running(layout):
        os.kill(pid, signal.SIGHUP)
    else:
        daemon.start(layout)
    shell.wait_for(
        "every process to run as planned",
        lambda: not daemon.unsettled(layout),
        START_TIMEOUT_SEC,
        f"See {layout.logs}/supervisor.log.",
    )


def _ready(client: api.Api) -> bool:
    try:
        return bool(client.get("/readyz") == "ok")
    except (OSError, api.ApiError):
        return False


def _node_ready(client: api.Api) -> bool:
    node = client.find(f"/api/v1/nodes/{addresses.NODE_NAME}")
    return node is not None and condition(node, "Ready") == "True"


def _dns_ready(client: api.Api) -> bool:
    deployment = client.get("/apis/apps/v1/namespaces/kube-system/deployments/coredns")
    status = deployment.get("status", {})
    fresh = status.get("observedGeneration") == deployment["metadata"]["generation"]
    return bool(fresh and status.get("updatedReplicas") == 1 and status.get("readyReplicas") == 1)


def condition(resource: dict[str, Any], kind: str) -> str:
    found = [c["status"] for c in resource.get("status", {}).get("conditions", []) if c["type"] == kind]
    return str(found[0]) if found else "Unknown"


def probe_pod(image: str) -> dict[str, Any]:
    container = {
        "name": "probe",
        "image": image,
        "imagePullPolicy": "Never",
        "args": ["reach", f"kubernetes.default.svc.{addresses.DNS_DOMAIN}:443", "30"],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": PROBE_POD, "namespace": "kube-system"},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }


def _probe(client: api.Api, image: str) -> None:
    client.delete(PROBE_PATH)
    shell.wait_for("the last probe to go", lambda: client.find(PROBE_PATH) is None, PROBE_TIMEOUT_SEC)
    client.apply(probe_pod(image))
    try:
        shell.wait_for("the probe pod to end", lambda: _phase(client) in {"Succeeded", "Failed"}, PROBE_TIMEOUT_SEC)
        if _phase(client) == "Failed":
            said = client.get(f"{PROBE_PATH}/log")
            raise errors.ClusterError(f"a pod cannot reach the API by its Service's name: {said}")
    finally:
        client.delete(PROBE_PATH)


def _phase(client: api.Api) -> str:
    return str((client.find(PROBE_PATH) or {}).get("status", {}).get("phase", ""))
