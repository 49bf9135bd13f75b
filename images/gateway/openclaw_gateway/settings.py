"""What the gateway takes from its environment: secrets, identity, and how it runs without Kubernetes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from openclaw_core import names, placeholders
from openclaw_core.config.components import ConfigError, token_of

ENV_KUBERNETES = "OPENCLAW_KUBERNETES"
"""`off`: no API server; engines come from OPENCLAW_ENGINES and pauses only by the operator's post."""
ENV_ENGINES = "OPENCLAW_ENGINES"
"""`host:port,host:port`: engines by hand instead of from EndpointSlices."""
ENV_EXPERIENCE_DIR = "OPENCLAW_EXPERIENCE_DIR"
"""Directory of the SQLite file; default the mounted volume."""
ENV_CLIENT_KEYS_DIR = "OPENCLAW_CLIENT_KEYS_DIR"
"""Directory of the clients' keys; default the mounted Secret."""
ENV_INTERNAL_PORT = "OPENCLAW_INTERNAL_PORT"
"""Internal port, where the default one is taken."""


@dataclass(frozen=True)
class Settings:
    token: str = field(repr=False)
    """Bearer token of the internal port."""
    api_key: str | None = field(repr=False)
    """Key clients must send; None: no authentication."""
    kubernetes: bool
    engines: tuple[str, ...]
    experience_dir: Path
    internal_port: int
    pod_name: str
    pod_uid: str
    postgres_url: str | None = field(default=None, repr=False)
    """Connection URL of a shared store; wanted when `queue.store` is postgres."""
    client_keys_dir: Path = Path(names.CLIENT_KEYS_DIR)
    """Where the Secret with the clients' keys is mounted, if the configuration names one."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "Settings":
        """ConfigError names the variable that is missing or wrong, never a value that is secret."""
        token = token_of(environ, names.ENV_GATEWAY_TOKEN, "the internal port needs it")
        kubernetes = environ.get(ENV_KUBERNETES, "on").strip().lower() not in ("off", "0", "false", "no")
        engines = _addresses(environ.get(ENV_ENGINES, ""))
        if not kubernetes and not engines:
            raise ConfigError(f"{ENV_KUBERNETES} is off: name the engines in {ENV_ENGINES}, e.g. 127.0.0.1:8000")
        return cls(
            token=token,
            api_key=_key(environ),
            kubernetes=kubernetes,
            engines=engines,
            experience_dir=Path(environ.get(ENV_EXPERIENCE_DIR) or names.EXPERIENCE_DIR),
            internal_port=_port(environ.get(ENV_INTERNAL_PORT) or str(names.PORT_GATEWAY_INTERNAL)),
            pod_name=environ.get(names.ENV_POD_NAME, "gateway"),
            pod_uid=environ.get(names.ENV_POD_UID, ""),
            postgres_url=environ.get(names.ENV_POSTGRES_URL, "").strip() or None,
            client_keys_dir=Path(environ.get(ENV_CLIENT_KEYS_DIR) or names.CLIENT_KEYS_DIR),
        )


def _key(environ: Mapping[str, str]) -> str | None:
    """None only when the variable is absent: an empty key is a mistake, not an open door."""
    if fault := placeholders.variable_fault(environ, names.ENV_GATEWAY_API_KEY):
        raise ConfigError(f"{fault}: put the clients' key into it")
    return environ.get(names.ENV_GATEWAY_API_KEY, "").strip() or None


def _addresses(text: str) -> tuple[str, ...]:
    addresses = tuple(word.strip() for word in text.split(",") if word.strip())
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise ConfigError(f"{ENV_ENGINES} has {address!r}, which is not host:port")
    return addresses


def _port(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise ConfigError(f"{ENV_INTERNAL_PORT} is {text!r}, which is not a port")
    return int(text)
