"""The chart on a real API server: any combination of values is taken, the CRD is upgraded and kept, rights are few."""

import itertools
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from openclaw_cluster import bare
from openclaw_core import names
from tests.cluster.lab import CHART, ROOT, CommandError, helm, kubectl, until_established
from tests.cluster.test_admission import body

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
Object = dict[str, Any]
NEWEST = "Controller that acts on this training"
"""Words of the schema that an older CRD lacks."""
MONITORS = ("servicemonitors", "podmonitors", "prometheusrules")
CHOICES = (
    ("replicas=1", "replicas=3"),
    ("watchNamespaces=null", "watchNamespaces={a,b}"),
    ("networkPolicies.enabled=true", "networkPolicies.enabled=true,networkPolicies.metricsNamespaces={mon}",
     "networkPolicies.enabled=false"),
    ("monitoring.dashboard.enabled=false",
     "monitoring.serviceMonitor.enabled=true,monitoring.podMonitor.enabled=true,monitoring.alertRules.enabled=true,"
     "monitoring.dashboard.enabled=true,monitoring.serviceMonitor.labels.release=prom"),
)  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[bare.Bare]:
    """An API server that also knows the Prometheus operator's kinds, and the namespaces the values name."""
    with bare.control_plane(tmp_path_factory.mktemp("chart")) as plane:
        for plural in MONITORS:
            apply(plane, prometheus_kind(plural))
        for namespace in ("ops", "a", "b"):
            kubectl("create", "namespace", namespace, kubeconfig=plane.kubeconfig)
        for plural in MONITORS:
            until_established(f"{plural}.monitoring.coreos.com", plane.kubeconfig)
        yield plane


def apply(plane: bare.Bare, *bodies: Object, more: tuple[str, ...] = ()) -> str:
    text = yaml.safe_dump_all(bodies)
    return kubectl("apply", "--server-side", *more, "-f", "-", stdin=text, kubeconfig=plane.kubeconfig)


def prometheus_kind(plural: str) -> Object:
    kind = {"servicemonitors": "ServiceMonitor", "podmonitors": "PodMonitor", "prometheusrules": "PrometheusRule"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    named = {"kind": kind[plural], "plural": plural, "singular": kind[plural].lower()}
    spec = {"group": "monitoring.coreos.com", "scope": "Namespaced", "names": named, "versions": [version]}
    metadata = {"name": f"{plural}.monitoring.coreos.com"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": spec,
    }


def rendered(plane: bare.Bare, *values: str) -> list[Object]:
    words = [word for value in values for word in ("--set", value)]
    text = helm(
        "template", "openclaw", str(CHART), "--namespace", "ops", "--kube-version", "1.34.4", *words,
        kubeconfig=plane.kubeconfig,
    )  # fmt: skip
    return [item for item in yaml.safe_load_all(text) if item]


@pytest.mark.parametrize("values", list(itertools.product(*CHOICES)), ids=lambda values: " ".join(values)[:60])
def test_every_combination_is_taken_by_the_api_server(server: bare.Bare, values: tuple[str, ...]) -> None:
    items = rendered(server, *values)
    assert {item["kind"] for item in items} >= {"Deployment", "ServiceAccount", "Role", "Service"}
    apply(server, *items, more=("--dry-run=server", "--validate=strict"))


def test_namespaced_install_has_no_cluster_role(server: bare.Bare) -> None:
    items = rendered(server, "watchNamespaces={a,b}", "monitoring.podMonitor.enabled=true")
    assert [item["kind"] for item in items if item["kind"].startswith("ClusterRole")] == []
    (monitor,) = [item for item in items if item["kind"] == "PodMonitor"]
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["a", "b"]}


def test_values_of_an_older_release_still_render(server: bare.Bare) -> None:
    """`helm upgrade --reuse-values` brings values that lack what is new."""
    older = [f"{key}=null" for key in ("networkPolicies", "monitoring", "rbac", "podDisruptionBudget")]
    assert rendered(server, *older)


def test_upgrade_brings_the_crd_and_uninstall_keeps_it_with_its_trainings(server: bare.Bare, tmp_path: Path) -> None:
    old = tmp_path / "openclaw-rl"
    shutil.copytree(CHART, old)
    template = old / "templates" / "crd.yaml"
    template.write_text(template.read_text().replace(NEWEST, "Words of an older release"))
    install = ("upgrade", "--install", "openclaw")
    where = ("--namespace", "ops", "--set", "replicas=0")
    helm(*install, str(old), *where, kubeconfig=server.kubeconfig)
    assert not has_newest_crd(server)
    helm(*install, str(CHART), *where, kubeconfig=server.kubeconfig)
    assert has_newest_crd(server)
    kept = body("kept", suspend=True)
    kubectl("-n", "a", "apply", "-f", "-", stdin=json.dumps(kept), kubeconfig=server.kubeconfig)
    helm("uninstall", "openclaw", "--namespace", "ops", kubeconfig=server.kubeconfig)
    assert "kept" in kubectl("-n", "a", "get", names.PLURAL, "-o", "name", kubeconfig=server.kubeconfig)
    helm(*install, str(CHART), *where, kubeconfig=server.kubeconfig)
    assert "kept" in kubectl("-n", "a", "get", names.PLURAL, "-o", "name", kubeconfig=server.kubeconfig)


def has_newest_crd(server: bare.Bare) -> bool:
    return NEWEST in kubectl("get", "crd", f"{names.PLURAL}.{names.GROUP}", "-o", "yaml", kubeconfig=server.kubeconfig)


def can(server: bare.Bare, who: str, *what: str) -> bool:
    try:
        kubectl("auth", "can-i", *what, f"--as={who}", kubeconfig=server.kubeconfig)
    except CommandError:
        return False
    return True


def test_viewers_and_editors_of_a_namespace_view_and_edit_its_trainings(server: bare.Bare) -> None:
    helm(
        *("upgrade", "--install", "openclaw", str(CHART), "--namespace", "ops", "--set", "replicas=0"),
        kubeconfig=server.kubeconfig,
    )
    for role in ("view", "edit", "admin"):
        words = ("-n", "a", "create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}")
        kubectl(*words, kubeconfig=server.kubeconfig)
    assert can(server, "view", "list", names.PLURAL, "-n", "a")
    assert not can(server, "view", "create", names.PLURAL, "-n", "a")
    assert not can(server, "view", "list", names.PLURAL, "-n", "b")
    for role in ("edit", "admin"):
        for verb in ("create", "patch", "delete"):
            assert can(server, role, verb, names.PLURAL, "-n", "a")
        assert can(server, role, "update", names.PLURAL, "--subresource=scale", "-n", "a")
        assert not can(server, role, "patch", names.PLURAL, "--subresource=status", "-n", "a")


def test_operator_holds_no_wildcard_and_lists_no_secret(server: bare.Bare) -> None:
    helm(
        *("upgrade", "--install", "openclaw", str(CHART), "--namespace", "ops", "--set", "replicas=0"),
        kubeconfig=server.kubeconfig,
    )
    account = "system:serviceaccount:ops:openclaw"
    listed = kubectl("auth", "can-i", "--list", f"--as={account}", "-n", "a", kubeconfig=server.kubeconfig)
    # Lines that start with a blank are URLs every account may read (discovery, health).
    assert [line for line in listed.splitlines() if "*" in line and not line.startswith(" ")] == []
    for verb in ("list", "watch", "delete", "patch", "update"):
        assert not can(server, account, verb, "secrets", "-n", "a")
    assert can(server, account, "get", "secrets", "-n", "a")
    for verb in ("delete", "create"):
        assert not can(server, account, verb, "pods", "-n", "a")
    assert not can(server, account, "create", "clusterroles")


def test_metrics_of_dashboard_and_alerts_exist_in_the_code(server: bare.Bare) -> None:
    texts = [json.dumps(item) for item in rendered(server, "monitoring.alertRules.enabled=true")]
    text = "".join(texts) + (CHART / "dashboards" / "openclaw-training.json").read_text()
    sources = "".join(
        file.read_text() for folder in ("operator", "images") for file in (ROOT / folder).rglob("*.py")
    ).replace('f"{prefix}_', '"openclawrl_gateway_')
    unknown = set()
    for metric in re.findall(r"openclawrl_[a-z_]+[a-z]", text):
        stem = re.sub(r"_(total|bucket)$", "", metric)
        if f'"{stem}"' not in sources and metric != "openclawrl_operator":
            unknown.add(metric)
    assert unknown == set()
