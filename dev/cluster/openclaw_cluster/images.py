"""Images of one static program each, written as archives without any image builder, and loaded into containerd.

They are the cluster's own (pause, probe, CoreDNS); their tags carry the program's hash, so a new build is a new image.
"""

import hashlib
import io
import json
import platform
import tarfile
from dataclasses import dataclass
from pathlib import Path

from openclaw_cluster import shell
from openclaw_cluster.layout import Layout

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
NOBODY = "65532:65532"


@dataclass(frozen=True)
class Image:
    reference: str
    program: Path
    """Becomes `/<name>`, the entry point."""


def image(layout: Layout, name: str) -> Image:
    program = (layout.tools / name).resolve()
    digest = hashlib.sha256(program.read_bytes()).hexdigest()[:12]
    return Image(f"openclaw.internal/{name}:{digest}", program)


def archive(image: Image, machine: str) -> bytes:
    """The image in the form `docker save` gives, which `ctr images import` reads. Same input, same bytes."""
    layer = _tar({image.program.name: (image.program.read_bytes(), 0o755)})
    config = {
        "architecture": ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {"Entrypoint": [f"/{image.program.name}"], "User": NOBODY, "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    encoded = json.dumps(config).encode()
    config_name = f"{hashlib.sha256(encoded).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [image.reference], "Layers": ["layer.tar"]}]
    return _tar(
        {
            "layer.tar": (layer, 0o644),
            config_name: (encoded, 0o644),
            "manifest.json": (json.dumps(manifest).encode(), 0o644),
        }
    )


def load(layout: Layout, wanted: list[Image]) -> None:
    """Import what containerd does not have yet."""
    present = shell.run([*ctr(layout), "images", "list", "--quiet"]).split()
    for one in wanted:
        if one.reference in present:
            continue
        layout.images.mkdir(parents=True, exist_ok=True)
        path = layout.images / "import.tar"
        path.write_bytes(archive(one, platform.machine()))
        shell.run([*ctr(layout), "images", "import", path], timeout_sec=120)
        path.unlink()


def ctr(layout: Layout) -> list[str]:
    return ["ctr", "--address", str(layout.containerd_socket), "--namespace", "k8s.io"]


def _tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, (content, mode) in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info.mode = mode
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()
