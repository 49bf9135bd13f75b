"""An API server in memory behind the real client: verbs, resourceVersions, conflicts, merge patches, selectors.

Server-side apply is a merge here (the real one is tested on a real API server); schemas and admission are absent.
"""

import copy
import itertools
import json
from collections.abc import Mapping
from typing import Any

from openclaw_core.kube import ConflictError, Kube, KubeError, NotFoundError, Object


class MemoryKube(Kube):
    """Objects by path. `requests` records every (method, path); `fail` maps a path prefix to an error to raise."""

    def __init__(self) -> None:
        super().__init__("http://memory", ssl_context=None)
        self.objects: dict[str, Object] = {}
        self.requests: list[tuple[str, str]] = []
        self.fail: dict[str, KubeError] = {}
        self._versions = itertools.count(1)
        self._uids = itertools.count(1)

    def put(self, path: str, body: Object) -> Object:
        """Store an object as if it had always been there."""
        stored = copy.deepcopy(body)
        metadata = stored.setdefault("metadata", {})
        metadata.setdefault("uid", f"uid-{next(self._uids)}")
        metadata["resourceVersion"] = str(next(self._versions))
        self.objects[path] = stored
        return stored

    def writes(self) -> list[tuple[str, str]]:
        return [(method, path) for method, path in self.requests if method != "GET"]

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
        del accept
        answer = self._answer(method, url, params or {}, json.loads(json.dumps(body)) if body is not None else {}, kind)
        return json.dumps(answer).encode()

    def _answer(self, method: str, url: str, params: Mapping[str, str], body: Object, kind: str) -> Object:
        self.requests.append((method, url))
        for prefix, error in self.fail.items():
            if url.startswith(prefix):
                raise error
        if method == "GET":
            return self._get(url, params)
        if method == "POST":
            return self._create(url, body)
        if method == "PATCH":
            return self._patch(url, body, apply="apply-patch" in kind)
        if method == "PUT":
            self._check_version(url, body)
            return copy.deepcopy(self.put(url, body))
        if method == "DELETE":
            self.objects.pop(url, None)
            return {}
        raise NotImplementedError(method)

    def _get(self, url: str, params: Mapping[str, str]) -> Object:
        if url in self.objects:
            return copy.deepcopy(self.objects[url])
        if not _is_collection(url):
            raise NotFoundError(404, "NotFound", f"{url} not found")
        wanted = dict(pair.split("=") for pair in params.get("labelSelector", "").split(",") if "=" in pair)
        items = [
            item
            for path, item in self.objects.items()
            if path.rsplit("/", 1)[0] == url and wanted.items() <= (item["metadata"].get("labels") or {}).items()
        ]
        return {"items": copy.deepcopy(items), "metadata": {"resourceVersion": "0"}}

    def _create(self, url: str, body: Object) -> Object:
        name = body["metadata"].get("name") or f"{body['metadata']['generateName']}{next(self._uids)}"
        path = f"{url}/{name}"
        if path in self.objects:
            raise ConflictError(409, "AlreadyExists", f"{path} exists")
        return copy.deepcopy(self.put(path, body))

    def _patch(self, url: str, body: Object, *, apply: bool) -> Object:
        path = url.removesuffix("/status")
        if path not in self.objects:
            if not apply:
                raise NotFoundError(404, "NotFound", f"{path} not found")
            # As the real one: a resourceVersion in an apply that creates is ignored, one in any other must fit.
            return copy.deepcopy(self.put(path, body))
        self._check_version(path, body)
        before = self.objects[path]
        after = _merged(before, body)
        if _content(after) != _content(before):
            after["metadata"]["resourceVersion"] = str(next(self._versions))
        self.objects[path] = after
        return copy.deepcopy(after)

    def _check_version(self, path: str, body: Object) -> None:
        wanted = body.get("metadata", {}).get("resourceVersion")
        if wanted and wanted != self.objects[path]["metadata"]["resourceVersion"]:
            raise ConflictError(409, "Conflict", f"{path} moved on")


def _is_collection(url: str) -> bool:
    """`…/namespaces/<ns>/<plural>` or a cluster-wide one: an object has one segment more."""
    parts = url.split("/namespaces/")[-1].split("/")
    return len(parts) == 2


def _content(item: Object) -> Object:
    return {**item, "metadata": {**item["metadata"], "resourceVersion": ""}}


def _merged(before: Any, patch: Any) -> Any:
    if not isinstance(before, dict) or not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(before)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(before.get(key), value)
    return result
