"""What the API server holds of one training: its own object, its children and its pods, read afresh each time.

Lists are narrowed by label on the server. Kinds of which no watch event came since the last look keep what that look
saw, so a pod's start costs two lists and not one of every kind; a resync, a failure and a new leader look at all.
"""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from openclaw_core import names
from openclaw_core.kube import Kube, NotFoundError
from openclaw_operator import kinds
from openclaw_operator.kinds import Kind
from openclaw_operator.training import Key

Object = dict[str, Any]
ChildKey = tuple[str, str]
"""(kind, name)."""


@dataclass(frozen=True)
class Observation:
    """One look at a training."""

    body: Object
    children: dict[ChildKey, Object]
    """As last seen or applied."""
    pods: tuple[Object, ...]

    def pods_of(self, component: str) -> list[Object]:
        """Pods of a component that are not being deleted and have not ended."""
        return [pod for pod in self.all_pods_of(component) if is_live(pod)]

    def ending_of(self, component: str) -> int:
        """How many of its pods are being deleted and still there."""
        return sum("deletionTimestamp" in pod["metadata"] for pod in self.all_pods_of(component))

    def all_pods_of(self, component: str) -> list[Object]:
        return [pod for pod in self.pods if _label(pod, names.LABEL_COMPONENT) == component]


def is_live(pod: Object) -> bool:
    ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return not ended and "deletionTimestamp" not in pod["metadata"]


async def observe(
    kube: Kube,
    key: Key,
    applied: Sequence[Kind] = kinds.APPLIED,
    *,
    known: Observation | None = None,
    changed: Collection[str] | None = None,
) -> Observation | None:
    """None when the training is gone or being deleted. `applied`: kinds of children this cluster can have.

    With `known` only kinds in `changed` (plural names) are listed, the rest is taken from it; `changed` None = all.
    """
    try:
        body = await kube.get(kinds.TRAINING.path(key.namespace, key.name))
    except NotFoundError:
        return None
    if "deletionTimestamp" in body["metadata"]:
        return None
    if known is None or known.body["metadata"]["uid"] != body["metadata"]["uid"]:
        known, changed = None, None
    listed = [kind for kind in (*applied, kinds.POD) if changed is None or kind.plural in changed]
    chosen = f"{names.LABEL_TRAINING}={key.name}"
    lists = await asyncio.gather(*(kube.list(kind.collection(key.namespace), label_selector=chosen) for kind in listed))
    found = {kind.kind: answer["items"] for kind, answer in zip(listed, lists, strict=True)}
    children = {item: value for item, value in (known.children if known else {}).items() if item[0] not in found}
    for kind, items in found.items():
        if kind != kinds.POD.kind:
            children |= {(kind, item["metadata"]["name"]): item for item in items}
    pods = tuple(found[kinds.POD.kind]) if kinds.POD.kind in found else known.pods if known else ()
    return Observation(body, children, pods)


def _label(item: Object, label: str) -> str | None:
    value: str | None = (item["metadata"].get("labels") or {}).get(label)
    return value
