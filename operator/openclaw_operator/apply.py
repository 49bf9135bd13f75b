"""Bring children to what the plan says: server-side apply with one field manager, then prune.

An apply is skipped while neither the manifest nor the live object changed since our last one, so an idle operator
sends nothing. An object of that name which is not ours is never taken over: it is reported instead.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from openclaw_core import names
from openclaw_core.kube import ConflictError, Kube, KubeError, NotFoundError
from openclaw_operator import kinds
from openclaw_operator.live import digest, fingerprint, kept, newer
from openclaw_operator.observe import ChildKey

Object = dict[str, Any]


_LATE = {"RoleBinding": 1} | dict.fromkeys(kinds.WORKLOADS, 2)
_INVALID = 422
_NO_VERSION = "1"
"""etcd's revision before its first write, so the resourceVersion of nothing."""
_UNTYPED = "failed to create typed patch object"
"""How the API server begins its answer to an apply with a field that does not exist, or with one key twice."""


@dataclass(frozen=True)
class Fault:
    """A child that could not be applied, and why in the API server's words."""

    child: ChildKey
    message: str
    component: str | None = None


@dataclass
class Memory:
    """Per training: hash of what was applied, and of the live object right after."""

    applied: dict[ChildKey, tuple[str, str]] = field(default_factory=dict)
    hashed: dict[ChildKey, tuple[Object, str]] = field(default_factory=dict)
    """Manifests that were hashed before, with their hash: most passes plan the very same ones again."""

    def digest(self, key: ChildKey, child: Object) -> str:
        known = self.hashed.get(key)
        if known is None or known[0] is not child:
            known = self.hashed[key] = (child, digest(child))
        return known[1]


class Applier:
    """Applies children of one namespace; remembers per training what is already so."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self.writes: Counter[str] = Counter()
        """Writes sent since the start by kind, for metrics and the test that an idle operator sends none."""

    async def apply(self, children: Iterable[Object], live: dict[ChildKey, Object], memory: Memory) -> list[Fault]:
        """Apply what differs, and keep `live` up to date. Faults are returned: one bad child stops no other.

        In three waves: a RoleBinding needs its Role to be there, and pods need what they refer to.
        """
        waves: dict[int, list[Object]] = {0: [], 1: [], 2: []}
        for child in children:
            waves[_LATE.get(child["kind"], 0)].append(child)
        faults: list[Fault] = []
        for batch in waves.values():
            results = await asyncio.gather(*(self._apply_one(child, live, memory) for child in batch))
            faults += [fault for fault in results if fault is not None]
        return faults

    async def prune(self, unwanted: Iterable[ChildKey], namespace: str, live: Mapping[ChildKey, Object]) -> None:
        """Delete children by uid, so a successor of the same name is safe."""
        for kind, name in unwanted:
            if kinds.BY_NAME[kind].prunable:
                self.writes[kind] += 1
                uid = live[kind, name]["metadata"]["uid"]
                await self._kube.delete(kinds.BY_NAME[kind].path(namespace, name), uid=uid)

    async def _apply_one(self, child: Object, live: dict[ChildKey, Object], memory: Memory) -> Fault | None:
        key = (child["kind"], child["metadata"]["name"])
        wanted, found = memory.digest(key, child), live.get(key)
        if found is not None and memory.applied.get(key) == (wanted, fingerprint(child["kind"], found)):
            return None
        try:
            reply = await self._send(child) if found is not None else await self._make(child)
        except KubeError as error:
            if _passes(error):
                raise
            component = (child["metadata"].get("labels") or {}).get(names.LABEL_COMPONENT)
            return Fault(key, f"{key[0]} {key[1]}: {error.message or error.reason}", component)
        made = kept(child["kind"], reply)
        if key not in live or newer(made, live[key]):  # a watch may have told of something later meanwhile
            live[key] = made
        memory.applied[key] = (wanted, fingerprint(child["kind"], made))
        return None

    async def _make(self, child: Object) -> Object:
        """Apply a child that is not known to exist, in one request: a version no object has lets the apply create it
        and touch none that is there. If one is there it must be this training's, seen by no watch yet."""
        fresh = {**child, "metadata": {**child["metadata"], "resourceVersion": _NO_VERSION}}
        try:
            return await self._send(fresh)
        except ConflictError:
            await self._refuse_foreign(child)
        return await self._send(child)

    async def _send(self, child: Object) -> Object:
        path = kinds.BY_NAME[child["kind"]].path(child["metadata"]["namespace"], child["metadata"]["name"])
        self.writes[child["kind"]] += 1
        try:
            return await self._kube.apply(path, child, field_manager=names.FIELD_MANAGER)
        except KubeError as error:
            if error.status != _INVALID or child["kind"] != "Service":
                raise
        # An apply merges list entries by key, so a foreign port can clash with ours for ever: replace the lists.
        await self._kube.merge_patch(path, {"spec": child["spec"]}, field_manager=names.FIELD_MANAGER)
        return await self._kube.apply(path, child, field_manager=names.FIELD_MANAGER)

    async def _refuse_foreign(self, child: Object) -> None:
        """Raises KubeError 409 when an object of that name exists that this training does not own."""
        path = kinds.BY_NAME[child["kind"]].path(child["metadata"]["namespace"], child["metadata"]["name"])
        try:
            existing = await self._kube.get(path, metadata_only=True)
        except NotFoundError:
            return
        owners = {reference["uid"] for reference in existing["metadata"].get("ownerReferences") or []}
        ours = {reference["uid"] for reference in child["metadata"]["ownerReferences"]}
        if not owners & ours:
            raise KubeError(409, "Exists", "exists already and does not belong to this training; rename one of the two")


def _passes(error: KubeError) -> bool:
    """Whether trying again may help. A manifest the schema does not know gets a 500 all the same."""
    return (error.status >= 500 or error.status == 429) and _UNTYPED not in error.message
