"""Builds the cluster's programs once per version into the cache, and links the ones in use.

A build's folder is named by its version, or by the hash of its sources where they are ours, so a changed source
gives a new folder and an unchanged one costs nothing.
"""

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from openclaw_cluster import shell, toolchain
from openclaw_cluster.layout import Layout

KUBERNETES_VERSION = "1.34.4"
HELM_VERSION = "3.21.4"
COREDNS_VERSION = "1.14.7"
KUBE_ROUTER_VERSION = "2.1.0"
"""Newer ones need an untagged commit of a dependency, which a module proxy may refuse. Only its firewall runs here."""

KWOK_VERSION = "0.7.0"

COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet")
SOURCES = Path(__file__).parent.parent
BUILD_TIMEOUT_SEC = 3600


@dataclass(frozen=True)
class Build:
    program: str
    """Name of the built file."""
    version: str
    package: str
    """`path@version` for `go install`; empty where `source` is built instead."""
    source: Path | None = None
    ldflags: str = "-s -w"
    links: tuple[str, ...] = ()
    """Names the program is called by, if not its own."""

    @property
    def key(self) -> str:
        return f"{self.program}-{self.version}" + (f"-{_fingerprint(self.source)}" if self.source else "")


KWOK = Build("kwok", KWOK_VERSION, f"sigs.k8s.io/kwok/cmd/kwok@v{KWOK_VERSION}")
"""Nodes and pods on paper, for measurements only: built when first asked for, by nobody's `cluster-up`."""


def plan() -> list[Build]:
    stamp = {
        "gitVersion": f"v{KUBERNETES_VERSION}",
        "gitMajor": "1",
        "gitMinor": KUBERNETES_VERSION.split(".")[1],
        "gitTreeState": "clean",
        "gitCommit": "embedded",
    }
    versioned = " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamp.items())
    return [
        Build("probe", "1", "", source=SOURCES / "probe"),
        Build(
            "kubernetes",
            KUBERNETES_VERSION,
            "",
            source=SOURCES / "kubernetes",
            ldflags=f"-s -w {versioned}",
            links=COMPONENTS,
        ),
        Build("coredns", COREDNS_VERSION, f"github.com/coredns/coredns@v{COREDNS_VERSION}"),
        Build("helm", HELM_VERSION, f"helm.sh/helm/v3/cmd/helm@v{HELM_VERSION}"),
        Build(
            "kube-router",
            KUBE_ROUTER_VERSION,
            f"github.com/cloudnativelabs/kube-router/v2/cmd/kube-router@v{KUBE_ROUTER_VERSION}",
        ),
    ]


def missing(layout: Layout) -> list[Build]:
    return [build for build in plan() if not result(layout, build).exists()]


def ensure(layout: Layout, build: Build) -> None:
    """Build it if it is missing."""
    if not result(layout, build).exists():
        make(layout, build)


def make(layout: Layout, build: Build) -> None:
    """Build into a draft folder and rename, so an interrupted build never looks finished."""
    go = toolchain.find_go(layout)
    target = result(layout, build).parent
    draft = target.with_name(f".{target.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    env = {"CGO_ENABLED": "0", "GOBIN": str(draft), "GOFLAGS": "-trimpath -buildvcs=false"}
    destination: list[str | Path] = ["-o", draft / build.program] if build.source else []
    command = ["nice", go, "build" if build.source else "install", "-ldflags", build.ldflags, *destination]
    shell.run([*command, build.package or "."], cwd=build.source, env=env, timeout_sec=BUILD_TIMEOUT_SEC)
    shutil.rmtree(target, ignore_errors=True)
    draft.rename(target)


def link(layout: Layout) -> None:
    """Point `<state>/bin/<name>` at the builds in use."""
    layout.tools.mkdir(parents=True, exist_ok=True)
    for build in plan():
        for name in build.links or (build.program,):
            draft = layout.tools / f".{name}.draft"
            draft.unlink(missing_ok=True)
            draft.symlink_to(result(layout, build))
            os.replace(draft, layout.tools / name)


def result(layout: Layout, build: Build) -> Path:
    """Where the built program lies, or will."""
    return layout.binaries / build.key / build.program


def _fingerprint(source: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(source.iterdir()):
        if path.is_file():
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]
