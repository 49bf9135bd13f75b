import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from openclaw_cluster import builds, firewall, images, layout, pki, pods, preflight, sweep, toolchain

LAYOUT = layout.Layout(cache=Path("/cache"), run=Path("/run/there"))
HOST = preflight.Host(system="Linux", root=True, has_apt=True, free_gb=60, cold=True)


def test_preflight_accepts_a_fit_host_and_names_what_is_missing() -> None:
    assert preflight.complaint(HOST) is None
    assert "root" in str(preflight.complaint(replace(HOST, root=False)))
    assert "Linux" in str(preflight.complaint(replace(HOST, system="Darwin")))
    assert "apt-get" in str(preflight.complaint(replace(HOST, has_apt=False)))


def test_preflight_wants_45_gb_only_when_caches_are_cold() -> None:
    assert "45 GB" in str(preflight.complaint(replace(HOST, free_gb=20)))
    assert preflight.complaint(replace(HOST, free_gb=20, cold=False)) is None


@pytest.mark.parametrize(
    ("text", "version"),
    [("go version go1.26.8 linux/amd64", (1, 26)), ("go version go1.19 linux/amd64", (1, 19)), ("no", None)],
)
def test_go_version_is_read_from_its_own_words(text: str, version: tuple[int, int] | None) -> None:
    assert toolchain.parse_version(text) == version


def test_build_keys_change_with_our_sources_and_versions() -> None:
    keys = {build.program: build.key for build in builds.plan()}
    assert keys["helm"] == f"helm-{builds.HELM_VERSION}"
    assert keys["kubernetes"].startswith(f"kubernetes-{builds.KUBERNETES_VERSION}-")


def test_go_module_pins_the_kubernetes_version_everywhere() -> None:
    module = (builds.SOURCES / "kubernetes" / "go.mod").read_text()
    assert f"k8s.io/kubernetes v{builds.KUBERNETES_VERSION}" in module
    staging = [line.split()[-1] for line in module.splitlines() if line.strip().startswith("k8s.io/") and "=>" in line]
    assert set(staging) == {f"v0.{builds.KUBERNETES_VERSION.removeprefix('1.')}"}


def test_server_certificates_name_every_way_to_the_api() -> None:
    server = next(c for c in pki.CERTIFICATES if c.name == "apiserver")
    text = pki.extensions(server)
    for host in ("IP:127.0.0.1", "IP:10.96.0.1", "IP:10.244.0.1", "DNS:kubernetes.default.svc"):
        assert host in text
    assert "serverAuth" not in pki.extensions(pki.Certificate("c", "/CN=c"))


def test_image_archive_is_one_layer_with_the_program_as_entry_point(tmp_path: Path) -> None:
    (tmp_path / "probe").write_bytes(b"program")
    made = images.archive(images.Image("openclaw.internal/probe:1", tmp_path / "probe"), "x86_64")
    assert made == images.archive(images.Image("openclaw.internal/probe:1", tmp_path / "probe"), "x86_64")
    with tarfile.open(fileobj=io.BytesIO(made)) as tar:
        [manifest] = json.load(tar.extractfile("manifest.json") or io.BytesIO())
        config = json.load(tar.extractfile(manifest["Config"]) or io.BytesIO())
    assert manifest["RepoTags"] == ["openclaw.internal/probe:1"]
    assert config["config"]["Entrypoint"] == ["/probe"]
    assert config["config"]["User"] == "65532:65532"
    assert config["architecture"] == "amd64"


def test_running_tasks_are_read_from_the_listing() -> None:
    listing = "TASK    PID     STATUS    \nabc     123     RUNNING\ndef     0       STOPPED\n"
    assert pods.parse_tasks(listing) == {"abc": 123}


@pytest.mark.parametrize(
    ("argv", "ours"),
    [
        (["/cache/cluster/bin/kubelet", "--config=/run/there/config/kubelet.yaml"], True),
        (["containerd", "--config", "/run/there/config/containerd.toml"], True),
        (["/usr/bin/containerd-shim-runc-v2", "-address", "/run/there/containerd.sock"], True),
        (["python", "-m", "openclaw_cluster.supervisor"], True),
        (["containerd", "--config", "/etc/containerd/config.toml"], False),
        (["kubectl", "--kubeconfig", "/cache/cluster/kubeconfig", "get", "pods"], False),
        (["bash", "-c", "tail -f /cache/cluster/logs/kubelet.log"], False),
        (["python", "-m", "openclaw_cluster", "down"], False),
        ([], False),
    ],
)
def test_sweep_knows_our_processes_from_those_that_mention_our_folders(argv: list[str], ours: bool) -> None:
    assert sweep.is_ours(argv, LAYOUT) is ours


def test_mounts_under_our_folders_come_deepest_first(tmp_path: Path) -> None:
    table = tmp_path / "mounts"
    table.write_text(
        "a /cache/cluster/kubelet/x tmpfs rw 0 0\nb /cache/cluster/kubelet/x/deep\\040er tmpfs rw 0 0\n"
        "c /cache/images/y overlay rw 0 0\nd /run/there/n nsfs rw 0 0\n"
    )
    found = sweep.mounts(LAYOUT, table)
    assert found == ["/cache/cluster/kubelet/x/deep er", "/cache/cluster/kubelet/x", "/run/there/n"]


def test_firewall_keeps_everything_that_is_not_ours() -> None:
    saved = (
        "*filter\n:INPUT ACCEPT [0:0]\n:KUBE-ROUTER-INPUT - [0:0]\n-A INPUT -p tcp -j ACCEPT\n"
        "-A INPUT -j KUBE-ROUTER-INPUT\n-A CNI-DN-1 -j ACCEPT\nCOMMIT\n"
    )
    assert firewall.without_ours(saved) == "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p tcp -j ACCEPT\nCOMMIT\n"
