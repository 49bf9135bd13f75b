"""Installs the Debian packages the node is made of, without letting their services start."""

import shutil
from pathlib import Path

from openclaw_cluster import shell

PACKAGES = {
    "buildah": "buildah",
    "conntrack": "conntrack",
    "containerd": "containerd",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "docker-registry": "docker-registry",
    "etcd-server": "etcd",
    "ipset": "ipset",
    "iproute2": "ip",
    "iptables": "iptables",
    "mmdebstrap": "mmdebstrap",
    "nftables": "nft",
    "openssl": "openssl",
    "runc": "runc",
}
"""Package -> a program (or file) that tells that it is there."""

SERVICES = ("etcd", "containerd", "docker-registry")
POLICY = Path("/usr/sbin/policy-rc.d")
NO_SERVICE_STARTS = "#!/bin/sh\nexit 101\n"


def missing() -> list[str]:
    return [name for name, proof in PACKAGES.items() if not shutil.which(proof) and not Path(proof).is_file()]


def install(names: list[str]) -> None:
    ours = not POLICY.exists()
    if ours:
        POLICY.write_text(NO_SERVICE_STARTS)
        POLICY.chmod(0o755)
    try:
        env = {"DEBIAN_FRONTEND": "noninteractive"}
        shell.run(["apt-get", "update"], env=env, timeout_sec=300)
        arguments = ["--yes", "--no-install-recommends", *names]
        shell.run(["apt-get", "install", *arguments], env=env, timeout_sec=900)
    finally:
        if ours:
            POLICY.unlink()
    if Path("/run/systemd/system").is_dir():
        # Installed but never wanted at boot: the cluster runs its own copies with its own state.
        shell.run(["systemctl", "disable", *SERVICES], check=False)
