"""Certificates and kubeconfigs, made once with the openssl program and kept with the state.

Three authorities: Kubernetes, etcd, and the API server towards aggregated servers, so that a node's or user's
certificate neither opens the database nor speaks for others.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from openclaw_cluster import addresses, shell
from openclaw_cluster.layout import Layout

DAYS = "3650"
AUTHORITIES = ("ca", "etcd-ca", "front-proxy-ca")


@dataclass(frozen=True)
class Certificate:
    name: str
    subject: str
    authority: str = "ca"
    hosts: tuple[str, ...] = ()
    """Names and addresses it serves; empty for a client certificate."""


API_HOSTS = (
    "DNS:kubernetes",
    "DNS:kubernetes.default",
    "DNS:kubernetes.default.svc",
    f"DNS:kubernetes.default.svc.{addresses.DNS_DOMAIN}",
    "DNS:localhost",
    "IP:127.0.0.1",
    f"IP:{addresses.NODE_IP}",
    f"IP:{addresses.API_SERVICE_IP}",
)

CERTIFICATES = (
    Certificate("apiserver", "/CN=kube-apiserver", hosts=API_HOSTS),
    Certificate("apiserver-kubelet-client", "/O=system:masters/CN=kube-apiserver-kubelet-client"),
    Certificate("admin", "/O=system:masters/CN=openclaw-admin"),
    Certificate("kube-controller-manager", "/CN=system:kube-controller-manager"),
    Certificate("kube-scheduler", "/CN=system:kube-scheduler"),
    Certificate("kube-proxy", "/CN=system:kube-proxy"),
    Certificate("kube-router", "/O=system:masters/CN=kube-router"),
    Certificate("kubelet-client", f"/O=system:nodes/CN=system:node:{addresses.NODE_NAME}"),
    Certificate(
        "kubelet", f"/CN={addresses.NODE_NAME}", hosts=(f"DNS:{addresses.NODE_NAME}", f"IP:{addresses.NODE_IP}")
    ),
    Certificate("front-proxy-client", "/CN=front-proxy-client", authority="front-proxy-ca"),
    Certificate("etcd", "/CN=etcd", authority="etcd-ca", hosts=("DNS:localhost", "IP:127.0.0.1")),
    Certificate("etcd-client", "/CN=kube-apiserver", authority="etcd-ca"),
)

USERS = {
    "kube-controller-manager": "kube-controller-manager",
    "kube-scheduler": "kube-scheduler",
    "kube-proxy": "kube-proxy",
    "kube-router": "kube-router",
    "kubelet": "kubelet-client",
}
"""Component -> the certificate its kubeconfig carries."""


def ensure(layout: Layout) -> None:
    """Make what is missing; what exists stays, since running pods trust it."""
    layout.pki.mkdir(parents=True, exist_ok=True, mode=0o700)
    for authority in AUTHORITIES:
        _make_authority(layout.pki, authority)
    for certificate in CERTIFICATES:
        _make(layout.pki, certificate)
    _make_service_account_key(layout.pki)
    for component, name in USERS.items():
        shell.write_if_changed(layout.pki / f"{component}.kubeconfig", kubeconfig(layout.pki, name))
    shell.write_if_changed(layout.kubeconfig, kubeconfig(layout.pki, "admin"))


def kubeconfig(pki: Path, certificate: str) -> str:
    """A kubeconfig that embeds its keys, so that a copy of it works anywhere on this machine."""
    name = "openclaw"
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [
            {
                "name": name,
                "cluster": {"server": addresses.API_URL, "certificate-authority-data": _encoded(pki / "ca.crt")},
            }
        ],
        "users": [
            {
                "name": name,
                "user": {
                    "client-certificate-data": _encoded(pki / f"{certificate}.crt"),
                    "client-key-data": _encoded(pki / f"{certificate}.key"),
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    return yaml.safe_dump(config, sort_keys=False)


def extensions(certificate: Certificate) -> str:
    usage = "serverAuth, clientAuth" if certificate.hosts else "clientAuth"
    # Python 3.13 verifies strictly: without the two identifiers (and the authority's key usage) pods refuse the server.
    lines = [
        "basicConstraints = CA:FALSE",
        f"extendedKeyUsage = {usage}",
        "subjectKeyIdentifier = hash",
        "authorityKeyIdentifier = keyid",
    ]
    if certificate.hosts:
        lines.append(f"subjectAltName = {', '.join(certificate.hosts)}")
    return "\n".join(lines) + "\n"


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _make_authority(pki: Path, name: str) -> None:
    if (pki / f"{name}.crt").exists():
        return
    _make_key(pki / f"{name}.key")
    arguments: list[str | Path] = ["-key", pki / f"{name}.key", "-subj", f"/CN=openclaw-{name}", "-days", DAYS]
    usage = ["-addext", "keyUsage = critical, keyCertSign, cRLSign"]
    _openssl(["req", "-x509", "-new", *arguments, *usage, "-out", pki / f"{name}.crt"])


def _make(pki: Path, certificate: Certificate) -> None:
    result = pki / f"{certificate.name}.crt"
    if result.exists():
        return
    key, request, rules = (pki / f"{certificate.name}.{suffix}" for suffix in ("key", "csr", "ext"))
    authority = pki / certificate.authority
    _make_key(key)
    _openssl(["req", "-new", "-key", key, "-subj", certificate.subject, "-out", request])
    rules.write_text(extensions(certificate))
    signer = ["-CA", f"{authority}.crt", "-CAkey", f"{authority}.key", "-CAcreateserial", "-days", DAYS]
    _openssl(["x509", "-req", "-in", request, *signer, "-extfile", rules, "-out", result])
    request.unlink()
    rules.unlink()


def _make_service_account_key(pki: Path) -> None:
    if not (pki / "service-account.key").exists():
        _openssl(["genrsa", "-out", pki / "service-account.key", "2048"])
        (pki / "service-account.key").chmod(0o600)


def _make_key(path: Path) -> None:
    _openssl(["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path])
    path.chmod(0o600)


def _openssl(arguments: Sequence[str | Path]) -> None:
    shell.run(["openssl", *arguments])
