"""Watches Lease `<name>-weight-sync` and tells the gate: a pause or its release, and the admin's hold.

The gateway may list and watch this one Lease by its name and no other. A watch that breaks starts again with a backoff
of 0.1–10 s; without the API server the last word stands until it expires on our own clock.
"""

import asyncio
import logging
import random
from datetime import UTC, datetime
from typing import Any

import aiohttp

from openclaw_core import leases, names
from openclaw_core.kube import Kube, KubeError, path
from openclaw_gateway.gate import Gate

_log = logging.getLogger(__name__)
_FIRST_BACKOFF_SEC, _LONGEST_BACKOFF_SEC = 0.1, 10.0
LEASES = "coordination.k8s.io/v1"


class LeaseWatch:
    def __init__(self, kube: Kube, gate: Gate, *, namespace: str, training: str) -> None:
        self._kube, self._gate = kube, gate
        self._name = names.weight_sync_lease(training)
        self._collection = path(LEASES, "leases", namespace)
        self.seen_once = False
        """True once the Lease was asked for: a hold that began before this process is known."""

    async def run(self) -> None:
        backoff = _FIRST_BACKOFF_SEC
        while True:
            try:
                await self._list_and_watch()
                backoff = _FIRST_BACKOFF_SEC
            except (KubeError, aiohttp.ClientError, TimeoutError, leases.LeaseFormatError) as error:
                _log.warning("the watch of Lease %s broke: %s", self._name, error)
                backoff = min(2 * backoff, _LONGEST_BACKOFF_SEC)
            # Also after a watch that just ended: a server that ends each at once must not be hammered.
            await asyncio.sleep(backoff * random.uniform(0.5, 1.0))

    async def _list_and_watch(self) -> None:
        """One list, then the watch from there: a watch without a version needs more of etcd than every cluster has."""
        only = f"metadata.name={self._name}"
        listed = await self._kube.list(self._collection, field_selector=only)
        for lease in listed["items"]:
            self.seen(lease, datetime.now(UTC))
        self.seen_once = True
        version = listed["metadata"]["resourceVersion"]
        async for kind, lease in self._kube.watch(self._collection, resource_version=version, field_selector=only):
            if kind in ("ADDED", "MODIFIED"):
                self.seen(lease, datetime.now(UTC))

    def seen(self, lease: dict[str, Any], now: datetime) -> None:
        """Pass one state of the Lease on. Raises LeaseFormatError."""
        self._gate.hold_submissions(_submission_hold(lease), now)
        state = leases.parse_weight_sync(lease)
        if state.hold is not None:
            age_sec = (now - state.hold.acquired_at).total_seconds()
            self._gate.hold(state.hold.epoch, state.hold.duration_sec, age_sec)
        else:
            self._gate.release(state.served_epoch, state.serving_version, state.canary)


def _submission_hold(lease: dict[str, Any]) -> leases.SubmissionHold | None:
    """A garbled one is no hold, and must not keep the pauses beside it from being seen."""
    try:
        return leases.parse_submission_hold(lease)
    except leases.LeaseFormatError as error:
        _log.warning("the admin's hold is ignored: %s", error)
        return None
