"""This machine's package registry settings, as build secrets: mounted for single steps, in no layer.

Dockerfiles read two optional secrets: `registry` (shell exports) and `ca` (a bundle of certificates).
"""

import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
_PASSED = re.compile(
    r"^(UV_(DEFAULT_INDEX|INDEX|INDEX_URL|EXTRA_INDEX_URL|NATIVE_TLS|HTTP_TIMEOUT)"
    r"|PIP_(INDEX_URL|EXTRA_INDEX_URL|TRUSTED_HOST|DEFAULT_TIMEOUT)"
    r"|(HTTPS?|NO|ALL)_PROXY|(https?|no|all)_proxy)$"
)


def registry_exports(environment: Mapping[str, str], pip_index: str | None) -> str:
    """Shell lines for the secret `registry`. uv does not read pip's configuration, so pip's index is told to both."""
    settings = {name: value for name, value in environment.items() if _PASSED.match(name)}
    if pip_index:
        settings.setdefault("PIP_INDEX_URL", pip_index)
        if not {"UV_DEFAULT_INDEX", "UV_INDEX_URL"} & settings.keys():
            settings["UV_DEFAULT_INDEX"] = pip_index
    settings |= {"SSL_CERT_FILE": "/run/secrets/ca", "PIP_CERT": "/run/secrets/ca"}
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(settings.items()))


def write(folder: Path) -> list[str]:
    """Write the secrets into `folder` (private to us) and give buildah's arguments for them."""
    exports = folder / "registry"
    exports.touch(mode=0o600)
    exports.write_text(registry_exports(os.environ, _pip_index()))
    bundle = Path(os.environ.get("SSL_CERT_FILE") or _BUNDLE)
    return ["--secret", f"id=registry,src={exports}", "--secret", f"id=ca,src={bundle}"]


def _pip_index() -> str | None:
    done = subprocess.run(
        ["python3", "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or None if done.returncode == 0 else None
