from pathlib import Path

import pytest
import yaml

from openclaw_cluster import addresses, control_plane, coredns, desired, layout, node, processes, registry

LAYOUT = layout.Layout(cache=Path("/cache"), run=Path("/run/there"))


def flags_of(process: processes.Process) -> dict[str, str]:
    return dict(word.removeprefix("--").split("=", 1) for word in process.argv if word.startswith("--") and "=" in word)


def test_layout_follows_the_cache_variable_then_home() -> None:
    assert layout.from_environment({"HOME": "/h", "XDG_CACHE_HOME": "/x"}).state == Path("/x/openclaw-training/cluster")
    assert layout.from_environment({"HOME": "/h"}).kubeconfig == Path("/h/.cache/openclaw-training/cluster/kubeconfig")


def test_containerd_never_lowers_oom_scores_and_uses_our_pause_image() -> None:
    config = node.containerd_config(LAYOUT, "openclaw.internal/probe:1")
    assert "restrict_oom_score_adj = true" in config
    assert 'sandbox_image = "openclaw.internal/probe:1"' in config
    assert 'config_path = "/run/there/config/certs.d"' in config
    assert 'root = "/cache/cluster/containerd"' in config


def test_kubelet_config_suits_a_container_as_host() -> None:
    config = yaml.safe_load(node.kubelet_config(LAYOUT))
    assert config["cgroupDriver"] == "cgroupfs"
    assert config["oomScoreAdj"] == 0
    assert config["failCgroupV1"] is False
    assert config["failSwapOn"] is False
    assert config["serializeImagePulls"] is False
    assert config["imageGCHighThresholdPercent"] == 100
    assert config["clusterDNS"] == [addresses.DNS_SERVICE_IP]
    assert config["authentication"]["anonymous"]["enabled"] is False


def test_kube_proxy_uses_nftables_and_leaves_host_limits() -> None:
    config = yaml.safe_load(node.kube_proxy_config(LAYOUT))
    assert config["mode"] == "nftables"
    assert config["oomScoreAdj"] == 0
    assert config["conntrack"]["maxPerCore"] == 0


def test_apiserver_listens_on_the_node_address_only_and_reaches_etcd_by_certificate() -> None:
    flags = flags_of(control_plane.apiserver(LAYOUT))
    assert flags["bind-address"] == flags["advertise-address"] == addresses.NODE_IP
    assert flags["authorization-mode"] == "Node,RBAC"
    assert flags["etcd-certfile"] == "/cache/cluster/pki/etcd-client.crt"
    assert flags["kubelet-client-certificate"] == "/cache/cluster/pki/apiserver-kubelet-client.crt"


def test_etcd_demands_certificates_on_loopback() -> None:
    flags = flags_of(control_plane.etcd(LAYOUT))
    assert flags["client-cert-auth"] == "true"
    assert flags["listen-client-urls"].startswith("https://127.0.0.1:")


def test_registry_listens_on_loopback_and_containerd_is_told_it_speaks_http() -> None:
    config = yaml.safe_load(registry.config(LAYOUT))
    assert config["http"] == {"addr": addresses.REGISTRY}
    assert config["storage"]["delete"] == {"enabled": True}
    assert registry.hosts_toml().startswith(f'server = "http://{addresses.REGISTRY}"')


def test_node_address_is_the_gateway_of_the_pod_network() -> None:
    assert f'"gateway": "{addresses.NODE_IP}"' in node.cni_config(LAYOUT)
    assert f'"subnet": "{addresses.POD_CIDR}"' in node.cni_config(LAYOUT)


def test_dns_answers_unknown_names_rather_than_hang() -> None:
    assert "rcode NXDOMAIN" in coredns.COREFILE
    service = coredns.manifests("image")[-1]
    assert service["spec"]["clusterIP"] == addresses.DNS_SERVICE_IP
    assert service["spec"]["selector"] == {"k8s-app": "kube-dns"}


def test_plan_starts_what_others_need_first() -> None:
    names = [process.name for process in desired.plan(LAYOUT, desired.configuration(LAYOUT, "pause"))]
    assert names.index("etcd") < names.index("containerd") < names.index("kube-apiserver") < names.index("kubelet")


@pytest.mark.parametrize("name", ["kubelet", "containerd", "kube-proxy", "registry"])
def test_changed_configuration_restarts_only_the_process_that_reads_it(name: str) -> None:
    files = desired.configuration(LAYOUT, "pause")
    before = desired.plan(LAYOUT, files)
    path = next(p for p in files if p.stem == name)
    after = desired.plan(LAYOUT, {**files, path: files[path] + "# more\n"})
    assert [new.name for old, new in zip(before, after, strict=True) if old != new] == [name]


def test_plan_file_keeps_every_field(tmp_path: Path) -> None:
    plan = desired.plan(LAYOUT, desired.configuration(LAYOUT, "pause"))
    (tmp_path / "plan.json").write_text(processes.dump(plan))
    assert processes.load(tmp_path / "plan.json") == plan
