"""Kubernetes Events on a training: one per transition, in fixed reasons.

Posting is best effort and bounded: a lost event must not fail a reconcile.
"""

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import aiohttp

from openclaw_core import kube, names
from openclaw_core.kube import Kube, KubeError
from openclaw_operator import kinds
from openclaw_operator.training import Key

log = logging.getLogger(__name__)
_MESSAGE_LIMIT = 1024


@dataclass(frozen=True)
class Event:
    """What to tell the admin."""

    kind: Literal["Normal", "Warning"]
    reason: str
    message: str


def manifest(key: Key, uid: str, event: Event, now: datetime) -> dict[str, Any]:
    """The core/v1 Event object."""
    moment = now.astimezone(UTC)
    stamp = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{key.name}.", "namespace": key.namespace},
        "involvedObject": {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "name": key.name,
            "namespace": key.namespace,
            "uid": uid,
        },
        "type": event.kind,
        "reason": event.reason,
        "message": event.message[:_MESSAGE_LIMIT],
        "source": {"component": kinds.EVENT_SOURCE},
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }


class Recorder:
    """Posts events."""

    def __init__(self, api: Kube) -> None:
        self._api = api

    async def post(self, key: Key, uid: str, event: Event) -> None:
        log.info(event.message, extra={"training": str(key), "event": event.reason})
        body = manifest(key, uid, event, datetime.now(UTC))
        try:
            await self._api.create(kube.path("v1", kinds.EVENTS, key.namespace), body)
        except (KubeError, aiohttp.ClientError, TimeoutError) as error:
            log.warning("event not posted: %s", error, extra={"training": str(key), "event": event.reason})
