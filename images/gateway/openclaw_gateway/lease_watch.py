"""Watches Lease `<name>-weight-sync` and tells the gate: a hold, or its release.

The gateway may get and watch this one Lease and nothing else. A watch that breaks starts again with a backoff of
0.1–10 s; without the API server the last word stands until it expires on our own clock.
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

    async def run(self) -> None:
        backoff = _FIRST_BACKOFF_SEC
        while True:
            try:
                # Without a resourceVersion the watch begins with the Lease as it is: no list is needed, or allowed.
                async for kind, lease in self._kube.watch(
                    self._collection, field_selector=f"metadata.name={self._name}"
                ):
                    backoff = _FIRST_BACKOFF_SEC
                    if kind in ("ADDED", "MODIFIED"):
                        self.seen(lease, datetime.now(UTC))
            except (KubeError, aiohttp.ClientError, TimeoutError, leases.LeaseFormatError) as error:
                _log.warning("the watch of Lease %s broke: %s", self._name, error)
                backoff = min(2 * backoff, _LONGEST_BACKOFF_SEC)
            # Also after a watch that just ended: a server that ends each at once must not be hammered.
            await asyncio.sleep(backoff * random.uniform(0.5, 1.0))

    def seen(self, lease: dict[str, Any], now: datetime) -> None:
        """Pass one state of the Lease on. Raises LeaseFormatError."""
        state = leases.parse_weight_sync(lease)
        if state.hold is not None:
            age_sec = (now - state.hold.acquired_at).total_seconds()
            self._gate.hold(state.hold.epoch, state.hold.duration_sec, age_sec)
        else:
            self._gate.release(state.epoch, state.serving_version)
