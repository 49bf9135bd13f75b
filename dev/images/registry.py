"""What a registry already has, asked over its HTTP API."""

import urllib.error
import urllib.request

_ACCEPT = ", ".join(
    (
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
    )
)
_TIMEOUT_SEC = 10.0


class RegistryError(Exception):
    """No registry answers at the address."""


def is_loopback(registry: str) -> bool:
    """Loopback registries speak plain HTTP; every other one is asked over TLS."""
    return registry.rsplit(":", 1)[0] in ("127.0.0.1", "localhost", "[::1]")


def has(registry: str, repository: str, tag: str) -> bool:
    """Is `repository:tag` there? False also where the registry wants a login (the push then decides)."""
    host, _, prefix = registry.partition("/")
    scheme = "http" if is_loopback(host) else "https"
    path = f"{prefix}/{repository}" if prefix else repository
    request = urllib.request.Request(f"{scheme}://{host}/v2/{path}/manifests/{tag}", method="HEAD")
    request.add_header("Accept", _ACCEPT)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({} if is_loopback(host) else None))
    try:
        with opener.open(request, timeout=_TIMEOUT_SEC) as response:
            return bool(response.status == 200)
    except urllib.error.HTTPError:
        return False
    except (urllib.error.URLError, TimeoutError) as error:
        raise RegistryError(
            f"no registry answers at {registry} ({error}); `make cluster-up` starts the local one, "
            "REGISTRY=<host:port> names another"
        ) from error
