"""Where everything lies on disk: one value, made once from the environment, passed everywhere.

Lasting state is under the user's cache; sockets, pid files and generated configuration are under /run, which a
reboot may or may not empty, so `up` trusts nothing in there.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Layout:
    cache: Path
    """The product's cache; `bin` and `cluster` under it are ours."""
    run: Path
    """Sockets, pid files, generated configuration, containerd's state: worthless after `down`."""

    @property
    def binaries(self) -> Path:
        """Build results, one folder per tool and version; `purge` keeps them."""
        return self.cache / "bin"

    @property
    def state(self) -> Path:
        """Everything that outlives `down` and dies with `purge`."""
        return self.cache / "cluster"

    @property
    def tools(self) -> Path:
        """Links to the binaries in use, by program name; what `env` puts on PATH."""
        return self.state / "bin"

    @property
    def pki(self) -> Path:
        return self.state / "pki"

    @property
    def etcd(self) -> Path:
        return self.state / "etcd"

    @property
    def containerd(self) -> Path:
        return self.state / "containerd"

    @property
    def kubelet(self) -> Path:
        return self.state / "kubelet"

    @property
    def registry(self) -> Path:
        return self.state / "registry"

    @property
    def volumes(self) -> Path:
        return self.state / "volumes"

    @property
    def images(self) -> Path:
        return self.state / "images"

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's; a person's and the tests' KUBECONFIG."""
        return self.state / "kubeconfig"

    @property
    def config(self) -> Path:
        return self.run / "config"

    @property
    def containerd_socket(self) -> Path:
        return self.run / "containerd.sock"

    @property
    def plan(self) -> Path:
        """The processes the supervisor keeps alive, written by `up`."""
        return self.run / "processes.json"

    @property
    def running(self) -> Path:
        """Those of the plan that run and are ready, written by the supervisor."""
        return self.run / "running.json"

    @property
    def supervisor_pid(self) -> Path:
        return self.run / "supervisor.pid"

    @property
    def before(self) -> Path:
        """Settings of the host that `up` changed and `down` puts back."""
        return self.run / "before.json"

    @property
    def lock(self) -> Path:
        return self.cache / "cluster.lock"


def from_environment(environ: Mapping[str, str] = os.environ) -> Layout:
    home = Path(environ.get("HOME") or Path.home())
    cache = Path(environ.get("XDG_CACHE_HOME") or home / ".cache")
    return Layout(cache=cache / "openclaw-training", run=Path("/run/openclaw-cluster"))
