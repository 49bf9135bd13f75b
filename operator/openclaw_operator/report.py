"""Writes a training's status, events and mirror annotation: nothing at all when nothing changed."""

from collections.abc import Mapping
from typing import Any

from openclaw_core import names
from openclaw_core.kube import Kube
from openclaw_core.status import TrainingStatus
from openclaw_operator import kinds
from openclaw_operator.events import Event, Recorder
from openclaw_operator.training import Key

Object = dict[str, Any]


def dump(status: TrainingStatus) -> Object:
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> Object:
    """JSON merge patch from `old` to `new`: keys that went are null, lists are replaced whole."""
    patch: Object = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            nested = merge_patch(before, value)
            if nested:
                patch[key] = nested
        elif value != before or key not in old:
            patch[key] = value
    return patch


class Reporter:
    """Sends what differs."""

    def __init__(self, kube: Kube, recorder: Recorder) -> None:
        self._kube, self._recorder = kube, recorder
        self.writes = 0

    async def status(self, key: Key, uid: str, live: Mapping[str, Any], status: TrainingStatus) -> Object | None:
        """Patch `status` to the given value; the training as it is then, or None when nothing was to be written.
        `live` is the status as read."""
        patch = merge_patch(live, dump(status))
        if not patch:
            return None
        self.writes += 1
        path = kinds.TRAINING.path(key.namespace, key.name, "status")
        body = {"metadata": {"uid": uid}, "status": patch}
        return await self._kube.merge_patch(path, body, field_manager=names.FIELD_MANAGER)

    async def annotation(self, key: Key, uid: str, live: Mapping[str, Any], value: str | None) -> Object | None:
        """Mirror the weight sync in the training's own annotation; returns as `status` does."""
        notes = live.get("annotations") or {}
        if value is None or notes.get(names.ANNOTATION_WEIGHT_SYNC) == value:
            return None
        self.writes += 1
        body = {"metadata": {"uid": uid, "annotations": {names.ANNOTATION_WEIGHT_SYNC: value}}}
        path = kinds.TRAINING.path(key.namespace, key.name)
        return await self._kube.merge_patch(path, body, field_manager=names.FIELD_MANAGER)

    async def events(self, key: Key, uid: str, events: list[Event]) -> None:
        for event in events:
            await self._recorder.post(key, uid, event)
