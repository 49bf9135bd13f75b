"""Leader election on a Lease: duration 15 s, renewal bound 10 s, retry every 2 s. Losing it ends the process.

Time is counted from when the holder's renewal was first seen, on our own monotonic clock, so clock skew between
nodes cannot make two leaders.
"""

import asyncio
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import aiohttp

from openclaw_core.kube import ConflictError, Kube, KubeError, NotFoundError
from openclaw_core.leases import format_time
from openclaw_operator import kinds

log = logging.getLogger(__name__)
DURATION_SEC = 15
RENEW_WITHIN_SEC = 10.0
RETRY_SEC = 2.0
_FAILURES = (KubeError, aiohttp.ClientError, TimeoutError)


class LeadershipLostError(RuntimeError):
    """The Lease could not be renewed in time; another process may lead now."""


@dataclass(frozen=True)
class _Holder:
    """A holder's renewal and when we first saw it."""

    identity: str
    renewed: str
    transitions: int
    seen_at: float


class Leader:
    """One contender. `leading` is set from the first successful acquire on."""

    def __init__(self, kube: Kube, namespace: str, name: str, identity: str) -> None:
        self._kube, self._namespace, self._name, self._identity = kube, namespace, name, identity
        self.leading = asyncio.Event()
        self._holder: _Holder | None = None

    async def run(self) -> None:
        """Contend, then keep renewing. Raises LeadershipLostError; never returns."""
        loop = asyncio.get_running_loop()
        renewed_at = float("-inf")
        while True:
            asked_at = loop.time()
            held = await self._attempt()
            if held:
                renewed_at = asked_at
                if not self.leading.is_set():
                    log.info("leading", extra={"lease": self._name, "identity": self._identity})
                    self.leading.set()
            elif self.leading.is_set() and loop.time() - renewed_at > RENEW_WITHIN_SEC:
                raise LeadershipLostError(
                    f"Lease {self._namespace}/{self._name} was not renewed in {RENEW_WITHIN_SEC} s"
                )
            await asyncio.sleep(RETRY_SEC)

    async def release(self) -> None:
        """Give the Lease up on a clean stop, if it is ours, so that the next leader need not wait."""
        try:
            lease = await self._kube.get(self._path())
            if lease["spec"].get("holderIdentity") == self._identity:
                lease["spec"]["holderIdentity"] = ""
                await self._kube.replace(self._path(), lease)
        except _FAILURES as error:
            log.warning("Lease not released: %s", error)

    async def _attempt(self) -> bool:
        """Acquire or renew once; True when we hold it now."""
        try:
            async with asyncio.timeout(RENEW_WITHIN_SEC / 2):
                return await self._acquire_or_renew()
        except ConflictError:
            return False
        except _FAILURES as error:
            log.warning("leader election: %s", error)
            return False

    async def _acquire_or_renew(self) -> bool:
        now = format_time(datetime.now(UTC))
        try:
            lease = await self._kube.get(self._path())
        except NotFoundError:
            await self._kube.create(kinds.LEASE.collection(self._namespace), self._fresh(now))
            return True
        spec = lease.setdefault("spec", {})
        mine = spec.get("holderIdentity") == self._identity
        if not mine and not self._expired(spec):
            if self.leading.is_set():
                raise LeadershipLostError(f"{spec.get('holderIdentity')} leads now")
            return False
        if not mine:
            spec |= {"holderIdentity": self._identity, "acquireTime": now}
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + 1
        spec |= {"renewTime": now, "leaseDurationSeconds": DURATION_SEC}
        await self._kube.replace(self._path(), lease)
        return True

    def _expired(self, spec: dict[str, Any]) -> bool:
        if not spec.get("holderIdentity"):
            return True
        loop_time = asyncio.get_running_loop().time()
        current = (spec["holderIdentity"], spec.get("renewTime", ""), int(spec.get("leaseTransitions") or 0))
        known = self._holder
        if known is None or (known.identity, known.renewed, known.transitions) != current:
            self._holder = _Holder(*current, loop_time)
            return False
        return loop_time - known.seen_at > float(spec.get("leaseDurationSeconds") or DURATION_SEC)

    def _fresh(self, now: str) -> dict[str, Any]:
        return {
            "apiVersion": kinds.LEASE.api_version,
            "kind": kinds.LEASE.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {
                "holderIdentity": self._identity,
                "acquireTime": now,
                "renewTime": now,
                "leaseDurationSeconds": DURATION_SEC,
                "leaseTransitions": 0,
            },
        }

    def _path(self) -> str:
        return kinds.LEASE.path(self._namespace, self._name)
