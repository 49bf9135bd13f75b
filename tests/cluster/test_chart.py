"""The chart: renders without the network, refuses wrong values by name, asks for no more than it needs."""

import subprocess
from typing import Any

import pytest
import yaml

from tests.cluster.lab import CACHE, ROOT

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(60)]


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [str(CACHE / "cluster" / "bin" / "helm"), *arguments]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)


def rendered(*values: str) -> list[dict[str, Any]]:
    settings = [word for value in values for word in ("--set", value)]
    chart = str(ROOT / "charts" / "openclaw-rl")
    done = helm("template", "openclaw", chart, "--namespace", "ops", "--kube-version", "1.34.4", *settings)
    assert done.returncode == 0, done.stderr
    return [item for item in yaml.safe_load_all(done.stdout) if item]


def of(items: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [item for item in items if item["kind"] == kind]


def test_chart_lints() -> None:
    done = helm("lint", "--strict", str(ROOT / "charts" / "openclaw-rl"))
    assert done.returncode == 0, done.stdout


def test_crd_is_upgraded_by_helm_and_kept_on_uninstall() -> None:
    (definition,) = of(rendered(), "CustomResourceDefinition")
    assert definition["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert of(rendered("crds.install=false"), "CustomResourceDefinition") == []


def test_image_of_a_component_is_registry_and_tag_or_its_own_reference() -> None:
    (deployment,) = of(
        rendered("images.registry=r.test/x", "images.tag=v7", "images.engine=mine@sha256:1"), "Deployment"
    )
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    env = {item["name"]: item.get("value") for item in container["env"]}
    assert container["image"] == "r.test/x/openclaw-operator:v7"
    assert env["OPENCLAW_IMAGE_GATEWAY"] == "r.test/x/openclaw-gateway:v7"
    assert env["OPENCLAW_IMAGE_ENGINE"] == "mine@sha256:1"


@pytest.mark.parametrize(
    ("value", "words"),
    [("replicas=two", "replicas"), ("images.gatway=x", "gatway"), ("images.pullPolicy=Often", "pullPolicy")],
)
def test_wrong_value_is_refused_by_name(value: str, words: str) -> None:
    chart = str(ROOT / "charts" / "openclaw-rl")
    done = helm("template", "openclaw", chart, "--kube-version", "1.34.4", "--set", value)
    assert done.returncode != 0
    assert words in done.stderr


def test_operator_pod_meets_the_restricted_standard() -> None:
    (deployment,) = of(rendered(), "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_services_put_nothing_into_the_operators_environment() -> None:
    """The release's own Service, called `openclaw`, would set OPENCLAW_PORT to a URL."""
    deployment = of(rendered(), "Deployment")[0]
    assert deployment["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_rules_hold_no_wildcard_and_secrets_cannot_be_listed() -> None:
    for items in (rendered(), rendered("watchNamespaces={a,b}")):
        rules = [rule for kind in ("ClusterRole", "Role") for role in of(items, kind) for rule in role["rules"]]
        assert [rule for rule in rules if "*" in str(rule)] == []
        secrets = [rule["verbs"] for rule in rules if "secrets" in rule["resources"]]
        assert all(verbs == ["get", "create"] for verbs in secrets)


def test_namespaced_install_has_no_cluster_role() -> None:
    items = rendered("watchNamespaces={a,b}")
    assert of(items, "ClusterRole") + of(items, "ClusterRoleBinding") == []
    assert sorted(role["metadata"]["namespace"] for role in of(items, "Role")) == ["a", "b", "ops"]
