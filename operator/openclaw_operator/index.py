"""What the watches told of every training: its own object, its children and its pods.

    watch events ──told──▶ ┌───────┐ ◀── replies to our own writes (the tables of an Observation are these)
                           │ Index │ ──look──▶ Observation for a pass, without a request to the API server
    lists, in doubt ─────▶ └───────┘

An event that is older than what is known, or only echoes our own write, changes nothing; resourceVersions are compared
as numbers, as the API server's are. In doubt (a training that was there before us, a failed pass, a resync) a look
lists everything, as new as what was told of each kind. Bounded by the objects that carry a training's label.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from openclaw_core import names
from openclaw_operator import kinds, live
from openclaw_operator.observe import ChildKey, Listed, Observation
from openclaw_operator.training import Key

Object = dict[str, Any]


@dataclass
class _Known:
    """Of one training. `sure`: nothing can be missing."""

    body: Object | None = None
    children: dict[ChildKey, Object] = field(default_factory=dict)
    pods: dict[ChildKey, Object] = field(default_factory=dict)
    sure: bool = False
    news: int = 0
    """Events that told something new, so far."""

    def table(self, kind: str) -> dict[ChildKey, Object]:
        return self.pods if kind == kinds.POD.kind else self.children


class Index:
    """Everything known, by training."""

    def __init__(self) -> None:
        self._known: dict[Key, _Known] = {}
        self._newest: dict[str, int] = {}
        """Highest resourceVersion that was told of each kind, of whatever training."""

    def told(self, key: Key, kind: str, event: str | None, body: Object) -> bool:
        """Take in one event of a watch (`event` None: of its first list); True when it tells something new."""
        self._newest[kind] = max(self._newest.get(kind, 0), live.version(body))
        known = self._known.setdefault(key, _Known())
        told = _told_training if kind == names.KIND else _told_child
        new = told(known, kind, event, body)
        known.news += new
        if known.body is None and not known.children and not known.pods:
            del self._known[key]
        return new

    def look(self, key: Key) -> Observation | None:
        """What is known of a training; None in doubt: then list, and hand that to `listed`."""
        known = self._known.get(key)
        if known is None or not known.sure or known.body is None:
            return None
        return _observation(known.body, known)

    def news(self, key: Key) -> int:
        """Count of what was told of this training so far."""
        known = self._known.get(key)
        return known.news if known is not None else 0

    def newest(self, key: Key) -> dict[str, int]:
        """By kind, the resourceVersion that a list must not be older than: what is known here would be lost."""
        known, found = self._known.get(key, _Known()), dict(self._newest)
        for (kind, _), item in chain(known.children.items(), known.pods.items()):
            found[kind] = max(found.get(kind, 0), live.version(item))
        return found

    def listed(self, key: Key, found: Listed, news: int) -> Observation:
        """Replace what is known by a whole look that began after `news`; told of more since, doubt stays."""
        known = self._known[key] = _Known(live.without_managers(found.body), sure=self.news(key) == news, news=news)
        _fill(known, found.items)
        return _observation(found.body, known)

    def doubt(self, key: Key) -> None:
        """The next look lists everything."""
        if (known := self._known.get(key)) is not None:
            known.sure = False


def _observation(body: Object, known: _Known) -> Observation:
    return Observation(body, known.children, tuple(known.pods.values()))


def _fill(known: _Known, lists: Mapping[str, Sequence[Object]]) -> None:
    for kind, items in lists.items():
        known.table(kind).update(((kind, item["metadata"]["name"]), live.kept(kind, item)) for item in items)


def _told_training(known: _Known, kind: str, event: str | None, body: Object) -> bool:
    del kind
    if known.body is not None and not live.newer(body, known.body):
        return False
    deleted = event == "DELETED"
    another = known.body is None or known.body["metadata"]["uid"] != body["metadata"]["uid"]
    if deleted or another:
        # Made while we watched, it can have no child that no watch told of.
        known.sure = event == "ADDED"
    known.body = None if deleted else live.without_managers(body)
    return True


def _told_child(known: _Known, kind: str, event: str | None, body: Object) -> bool:
    table, key = known.table(kind), (kind, body["metadata"]["name"])
    before = table.get(key)
    if before is not None and not live.newer(body, before):
        return False
    if event != "DELETED":
        table[key] = live.kept(kind, body)
        return True
    if before is None or before["metadata"].get("uid") != body["metadata"].get("uid"):
        return False  # of an object that went before the one we know came
    del table[key]
    return True
