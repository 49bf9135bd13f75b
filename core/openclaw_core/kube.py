"""A thin asynchronous edge to the Kubernetes API over aiohttp: six verbs on plain dicts.

Gateway and trainer touch one Lease each, and the operator applies manifests its builders return as dicts; a client
library with a model of every kind would be most of their memory. This module knows paths, verbs and errors, and
nothing of what the objects mean.
"""

import asyncio
import base64
import json
import os
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack

import aiohttp
from pydantic import BaseModel

Object = dict[str, Any]
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=5)
_TOKEN_REREAD_SEC = 60.0


class KubeError(Exception):
    """The API server refused: HTTP status, reason and message of its Status object."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status, self.reason, self.message = status, reason, message


class NotFoundError(KubeError):
    """404."""


class ConflictError(KubeError):
    """409: the object exists, or its resourceVersion moved on."""


class GoneError(KubeError):
    """410: the watch's resourceVersion is too old; list again."""


_ERRORS: Mapping[int, type[KubeError]] = {404: NotFoundError, 409: ConflictError, 410: GoneError}


class _Rest(TypedDict, total=False):
    """Of a request, beside method and URL."""

    params: Mapping[str, str]
    body: Object
    kind: str
    accept: str


class _Metadata(BaseModel):
    name: str
    namespace: str = ""
    resourceVersion: str = ""


class _Versioned(BaseModel):
    metadata: _Metadata


class _Versions(BaseModel):
    """A list of which nothing but names and versions is kept. An empty one has null for its items."""

    items: list[_Versioned] | None


def path(api_version: str, plural: str, namespace: str | None = None, name: str = "", subresource: str = "") -> str:
    """URL path of a collection or an object, e.g. `/apis/apps/v1/namespaces/n/deployments/d/scale`."""
    root = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
    parts = [root]
    if namespace:
        parts.append(f"namespaces/{namespace}")
    parts += [part for part in (plural, name, subresource) if part]
    return "/".join(parts)


class Kube:
    """One connection pool to one API server. Use as an async context manager."""

    def __init__(
        self,
        server: str,
        *,
        ssl_context: ssl.SSLContext | None,
        token: str | None = None,
        token_file: Path | None = None,
    ) -> None:
        self._server = server.rstrip("/")
        self._ssl = ssl_context
        self._token, self._token_file, self._token_read_at = token, token_file, float("-inf")
        self._session: aiohttp.ClientSession | None = None

    @classmethod
    def in_cluster(cls) -> Self:
        """The pod's own ServiceAccount; its token is read again every minute."""
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        host = f"[{host}]" if ":" in host else host
        context = _trusting(ssl.create_default_context(cafile=str(_SERVICE_ACCOUNT / "ca.crt")))
        return cls(f"https://{host}:{port}", ssl_context=context, token_file=_SERVICE_ACCOUNT / "token")

    @classmethod
    def from_kubeconfig(cls, kubeconfig: Mapping[str, Any], context: str | None = None) -> Self:
        """A parsed kubeconfig with inline data or files; client certificate or token."""
        named = {
            kind: {e["name"]: e[kind[:-1]] for e in kubeconfig[kind]} for kind in ("clusters", "contexts", "users")
        }
        chosen = named["contexts"][context or kubeconfig["current-context"]]
        cluster, user = named["clusters"][chosen["cluster"]], named["users"][chosen["user"]]
        return cls(cluster["server"], ssl_context=_ssl_context(cluster, user), token=user.get("token"))

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, ssl=self._ssl or True))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, object_path: str, *, metadata_only: bool = False) -> Object:
        return await self._request("GET", object_path, accept=_accept("PartialObjectMetadata", metadata_only))

    async def list(
        self,
        collection: str,
        *,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        not_older_than: str = "",
    ) -> Object:
        """The whole list object: `items` and `metadata.resourceVersion`.

        With `not_older_than` (a resourceVersion of this kind) the API server may answer from its watch cache, which
        costs it a fraction; else it is as new as can be.
        """
        params = _selectors(label_selector, field_selector)
        if not_older_than:
            params |= {"resourceVersion": not_older_than, "resourceVersionMatch": "NotOlderThan"}
        accept = _accept("PartialObjectMetadataList", metadata_only)
        return await self._request("GET", collection, params=params, accept=accept)

    async def versions(self, collection: str) -> dict[tuple[str, str], str]:
        """resourceVersion of every object by (namespace, name). The rest of the answer, most of it, is not built up."""
        answer = await self._read("GET", collection, accept=_accept("PartialObjectMetadataList", True))
        found = _Versions.model_validate_json(answer).items or []
        return {(item.metadata.namespace, item.metadata.name): item.metadata.resourceVersion for item in found}

    async def create(self, collection: str, body: Object) -> Object:
        return await self._request("POST", collection, body=body)

    async def apply(self, object_path: str, body: Object, *, field_manager: str, force: bool = True) -> Object:
        """Server-side apply."""
        params = {"fieldManager": field_manager, "force": "true" if force else "false"}
        return await self._request("PATCH", object_path, params=params, body=body, kind="application/apply-patch+yaml")

    async def merge_patch(self, object_path: str, body: Object, *, field_manager: str = "") -> Object:
        """JSON merge patch. With `metadata.resourceVersion` in the body a stale one raises ConflictError."""
        params = {"fieldManager": field_manager} if field_manager else {}
        return await self._request("PATCH", object_path, params=params, body=body, kind="application/merge-patch+json")

    async def replace(self, object_path: str, body: Object) -> Object:
        return await self._request("PUT", object_path, body=body)

    async def delete(self, object_path: str, *, uid: str | None = None, propagation: str = "Background") -> None:
        """Absent is fine. With `uid` only that very object is deleted."""
        body: Object = {"propagationPolicy": propagation}
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            await self._request("DELETE", object_path, body=body)
        except NotFoundError:
            return

    async def watch(
        self,
        collection: str,
        *,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        timeout_sec: int = 240,
    ) -> AsyncIterator[tuple[str, Object]]:
        """Yield (ADDED|MODIFIED|DELETED|BOOKMARK, object) until the server closes the watch (≤ `timeout_sec`).

        Raises GoneError when the resourceVersion is too old. List first and start from the list's resourceVersion:
        API servers on etcd before 3.5 refuse a watch without one.
        """
        params = _selectors(label_selector, field_selector)
        params |= {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(timeout_sec)}
        if resource_version:
            params["resourceVersion"] = resource_version
        timeout = aiohttp.ClientTimeout(total=timeout_sec + 30, sock_connect=5)
        async with self._open().get(
            self._server + collection,
            params=params,
            headers=self._headers("application/json"),
            timeout=timeout,
        ) as response:
            await _raise_for_status(response)
            async for line in _lines(response.content):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise _error(event["object"], int(event["object"].get("code", 500)))
                yield event["type"], event["object"]

    async def _request(self, method: str, url: str, **rest: Unpack[_Rest]) -> Object:
        reply: Object = json.loads(await self._read(method, url, **rest))
        return reply

    async def _read(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Object | None = None,
        kind: str = "application/json",
        accept: str = "application/json",
    ) -> bytes:
        headers = self._headers(accept) | ({"Content-Type": kind} if body is not None else {})
        data = json.dumps(body) if body is not None else None
        async with self._open().request(
            method, self._server + url, params=params, data=data, headers=headers, timeout=_TIMEOUT
        ) as response:
            await _raise_for_status(response)
            return await response.read()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("Kube is used outside its `async with` block")
        return self._session

    def _headers(self, accept: str) -> dict[str, str]:
        token = self._bearer()
        return {"Accept": accept} | ({"Authorization": f"Bearer {token}"} if token else {})

    def _bearer(self) -> str | None:
        if self._token_file is not None:
            now = asyncio.get_running_loop().time()
            if now - self._token_read_at > _TOKEN_REREAD_SEC:
                self._token, self._token_read_at = self._token_file.read_text().strip(), now
        return self._token


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length (aiohttp's own iteration stops at its buffer size)."""
    rest = b""
    async for chunk in content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line:
                yield line


def _accept(kind: str, metadata_only: bool) -> str:
    return f"application/json;as={kind};g=meta.k8s.io;v=v1" if metadata_only else "application/json"


def _selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    pairs = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {key: value for key, value in pairs.items() if value}


async def _raise_for_status(response: aiohttp.ClientResponse) -> None:
    if response.status < 400:
        return
    text = await response.text()
    try:
        status = json.loads(text)
    except ValueError:
        status = {"reason": response.reason, "message": text[:300]}
    raise _error(status if isinstance(status, dict) else {}, response.status)


def _error(status: Object, code: int) -> KubeError:
    kind = _ERRORS.get(code, KubeError)
    return kind(code, str(status.get("reason") or ""), str(status.get("message") or ""))


def _trusting(context: ssl.SSLContext) -> ssl.SSLContext:
    """Accept what kubectl accepts: Python 3.13 also demands a key usage that many clusters' authorities lack."""
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _ssl_context(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext | None:
    if not cluster["server"].startswith("https"):
        return None
    context = _trusting(ssl.create_default_context(cadata=_data(cluster, "certificate-authority") or None))
    certificate, key = _data(user, "client-certificate"), _data(user, "client-key")
    if certificate and key:
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as pair:
            pair.write(certificate + "\n" + key)
            pair.flush()
            context.load_cert_chain(pair.name)
    return context


def _data(entry: Mapping[str, Any], field: str) -> str:
    if f"{field}-data" in entry:
        return base64.b64decode(entry[f"{field}-data"]).decode()
    return Path(entry[field]).read_text() if field in entry else ""
