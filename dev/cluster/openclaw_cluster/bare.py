"""A control plane without nodes, for tests that restart the API server, and for measurements that fill it.

    etcd ─▶ kube-apiserver ─▶ kube-controller-manager (· kube-scheduler) (· kwok: nodes and pods on paper)

Real programs of the embedded cluster on free local ports and a folder of their own: nothing of it is seen by, or
disturbs, the embedded cluster. Pods exist but no container runs; a test writes their status, or kwok does.
"""

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from openclaw_cluster import builds, layout, shell
from openclaw_cluster.control_plane import flags
from openclaw_cluster.errors import ClusterError
from openclaw_cluster.supervisor import die_with_parent

_START_SEC = 90.0
_STOP_SEC = 3.0
_ADMIN = "bare-admin"


@dataclass(frozen=True)
class Options:
    """What runs beside etcd and the API server."""

    controllers: bool = True
    scheduler: bool = False
    kwok: bool = False
    controller_qps: int = 20
    """--kube-api-qps of the controller manager (its own default); burst is half as much again."""


@dataclass
class Bare:
    """A running control plane; `kubeconfig` is the administrator's."""

    folder: Path
    options: Options
    port: int
    etcd_port: int
    token: str
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def write_kubeconfig(self, name: str, token: str, server: str = "") -> Path:
        """A kubeconfig for the bearer of `token`; `server` may be a proxy in front of the API server."""
        cluster = {"server": server or self.server, "certificate-authority": str(self.folder / "apiserver.crt")}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "bare",
            "clusters": [{"name": "bare", "cluster": cluster}],
            "users": [{"name": "bare", "user": {"token": token}}],
            "contexts": [{"name": "bare", "context": {"cluster": "bare", "user": "bare"}}],
        }
        path = self.folder / name
        shell.write_if_changed(path, yaml.safe_dump(config, sort_keys=False))
        return path

    def start(self, name: str, argv: Sequence[str | Path]) -> None:
        """Start one program; its output goes to `<folder>/<name>.log`.

        Under its bare name: the embedded cluster's sweep ends every process whose words name that cluster's folders.
        """
        program, *words = (str(word) for word in argv)
        with (self.folder / f"{name}.log").open("ab") as output:
            self.running[name] = subprocess.Popen(
                [Path(program).name, *words],
                executable=shutil.which(program),
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,
            )

    def stop(self, name: str) -> None:
        """End one program and wait for it; after 3 s it is killed."""
        process = self.running.pop(name, None)
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP_SEC)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def start_apiserver(self) -> None:
        """Also after `stop("apiserver")`: same port, same data."""
        self.start("apiserver", _apiserver(self))
        shell.wait_for("the API server", self._ready, _START_SEC, f"see {self.folder}/apiserver.log")

    def _ready(self) -> bool:
        if self.running["apiserver"].poll() is not None:
            raise ClusterError(f"the API server ended: see {self.folder}/apiserver.log")
        return "ok" in shell.run(
            ["curl", "-sk", "-H", f"Authorization: Bearer {self.token}", f"{self.server}/readyz"], check=False
        )


@contextlib.contextmanager
def control_plane(folder: Path, options: Options | None = None) -> Iterator[Bare]:
    """Run one in `folder` (made; keep it short-lived). Needs the programs `make cluster-up` built, and etcd."""
    folder.mkdir(parents=True, exist_ok=True)
    bare = Bare(folder, options or Options(), _free_port(), _free_port(), secrets.token_hex(16))
    try:
        _make_keys(bare)
        bare.start("etcd", _etcd(bare))
        bare.start_apiserver()
        bare.write_kubeconfig("kubeconfig", bare.token)
        if bare.options.controllers:
            bare.start("controller-manager", _controller_manager(bare))
        if bare.options.scheduler:
            bare.start("scheduler", _scheduler(bare))
        if bare.options.kwok:
            bare.start("kwok", _kwok(bare))
        yield bare
    finally:
        for name in reversed(list(bare.running)):
            bare.stop(name)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _make_keys(bare: Bare) -> None:
    shell.run(["openssl", "genrsa", "-out", bare.folder / "service-account.key", "2048"])
    names = "subjectAltName=IP:127.0.0.1,DNS:localhost"
    pair: list[str | Path] = ["-keyout", bare.folder / "apiserver.key", "-out", bare.folder / "apiserver.crt"]
    usage = ["-addext", names, "-addext", "keyUsage=critical,keyCertSign,digitalSignature"]
    shell.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=b", *pair, *usage]
    )
    (bare.folder / "tokens.csv").write_text(f'{bare.token},{_ADMIN},{_ADMIN},"system:masters"\n')


def _etcd(bare: Bare) -> list[str]:
    url, peer = f"http://127.0.0.1:{bare.etcd_port}", f"http://127.0.0.1:{_free_port()}"
    return [
        "etcd",
        *flags(
            data_dir=bare.folder / "etcd",
            listen_client_urls=url,
            advertise_client_urls=url,
            listen_peer_urls=peer,
            initial_advertise_peer_urls=peer,
            initial_cluster=f"default={peer}",
            quota_backend_bytes=4 << 30,
            log_level="warn",
            logger="zap",
        ),
        "--unsafe-no-fsync",
    ]


def _apiserver(bare: Bare) -> list[str]:
    key = bare.folder / "service-account.key"
    return [
        _tool("kube-apiserver"),
        *flags(
            bind_address="127.0.0.1",
            advertise_address="127.0.0.1",
            secure_port=bare.port,
            etcd_servers=f"http://127.0.0.1:{bare.etcd_port}",
            tls_cert_file=bare.folder / "apiserver.crt",
            tls_private_key_file=bare.folder / "apiserver.key",
            token_auth_file=bare.folder / "tokens.csv",
            service_account_issuer="https://bare.test",
            service_account_key_file=key,
            service_account_signing_key_file=key,
            service_cluster_ip_range="10.97.0.0/16",
            authorization_mode="RBAC",
            disable_admission_plugins="ServiceAccount",
            feature_gates="SizeBasedListCostEstimate=false",
            shutdown_delay_duration="0s",
            shutdown_watch_termination_grace_period="0s",
            # The measurement is of the operator, not of the server's fairness between one client's requests.
            enable_priority_and_fairness="false",
            max_requests_inflight=800,
            max_mutating_requests_inflight=400,
        ),
    ]


def _controller_manager(bare: Bare) -> list[str]:
    return [
        _tool("kube-controller-manager"),
        *flags(
            kubeconfig=bare.kubeconfig,
            bind_address="127.0.0.1",
            secure_port=0,
            leader_elect="false",
            service_account_private_key_file=bare.folder / "service-account.key",
            # Nodes on paper send no heartbeats.
            controllers="*,-node-lifecycle-controller,-taint-eviction-controller",
            kube_api_qps=bare.options.controller_qps,
            kube_api_burst=bare.options.controller_qps * 3 // 2,
        ),
    ]


def _scheduler(bare: Bare) -> list[str]:
    return [
        _tool("kube-scheduler"),
        *flags(kubeconfig=bare.kubeconfig, bind_address="127.0.0.1", secure_port=0, leader_elect="false"),
    ]


def _kwok(bare: Bare) -> list[str]:
    where = layout.from_environment()
    builds.ensure(where, builds.KWOK)
    return [
        str(builds.result(where, builds.KWOK)),
        *flags(kubeconfig=bare.kubeconfig, manage_all_nodes="true", node_lease_duration_seconds=0, server_address=""),
    ]


def _tool(name: str) -> str:
    path = layout.from_environment().tools / name
    if not os.path.exists(path):
        raise ClusterError(f"{name} is not built yet: run `make cluster-up`")
    return str(path)
