"""What the API server holds of one training: its own object, its children and its pods.

Usually known from the watches (`index`), else listed, narrowed by label on the server.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openclaw_core import names
from openclaw_core.kube import Kube, KubeError, NotFoundError
from openclaw_operator import kinds
from openclaw_operator.kinds import Kind
from openclaw_operator.training import Key

Object = dict[str, Any]
_TOO_NEW = 504
"""The API server's watch cache did not come to that resourceVersion in time, or, put back to an older state, never."""
ChildKey = tuple[str, str]
"""(kind, name)."""


@dataclass(frozen=True)
class Observation:
    """One look at a training."""

    body: Object
    children: dict[ChildKey, Object]
    """What is kept of each (`live.kept`), as last seen or applied."""
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


@dataclass(frozen=True)
class Listed:
    """A whole look: the training's own object, and by kind all that carries its label."""

    body: Object
    items: Mapping[str, Sequence[Object]]


async def listed(
    kube: Kube, key: Key, applied: Sequence[Kind] = kinds.APPLIED, newest: Mapping[str, int] | None = None
) -> Listed | None:
    """Read everything; None when the training is gone. `applied`: kinds of children this cluster can have.

    `newest`: by kind, the resourceVersion that the answer must not be older than. A kind that is not in there is read
    as it is now, which an API server in front of an old etcd decodes every object of the namespace for.
    """
    try:
        body = await kube.get(kinds.TRAINING.path(key.namespace, key.name))
    except NotFoundError:
        return None
    chosen, wanted = f"{names.LABEL_TRAINING}={key.name}", (*applied, kinds.POD)
    known = newest or {}
    lists = await asyncio.gather(
        *(_items(kube, kind.collection(key.namespace), chosen, known.get(kind.kind, 0)) for kind in wanted)
    )
    return Listed(body, {kind.kind: items for kind, items in zip(wanted, lists, strict=True)})


async def _items(kube: Kube, collection: str, chosen: str, newest: int) -> Sequence[Object]:
    try:
        found = await kube.list(collection, label_selector=chosen, not_older_than=str(newest or ""))
    except KubeError as error:
        if not newest or error.status != _TOO_NEW:
            raise
        found = await kube.list(collection, label_selector=chosen)
    items: Sequence[Object] = found["items"]
    return items


def _label(item: Object, label: str) -> str | None:
    value: str | None = (item["metadata"].get("labels") or {}).get(label)
    return value
