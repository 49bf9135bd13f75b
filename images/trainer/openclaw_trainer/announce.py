"""Tells the world which version is newest: Lease `<name>-published`, or a file where there is no cluster.

What became of the announced versions the operator says in the other Lease, `<name>-weight-sync`.

The Lease carries the trainer's epoch. It is written with the resourceVersion that was read, so a trainer that was
replaced while it slept is refused instead of announcing an old version over a newer one.
"""

import asyncio
import json
import logging
from pathlib import Path
from typing import Protocol

import aiohttp

from openclaw_core import kube, leases, names
from openclaw_core.versions import WeightVersion
from openclaw_trainer.volume import StaleEpochError

log = logging.getLogger(__name__)
_ATTEMPTS = 8
_LEASES = "coordination.k8s.io/v1"


class AnnounceError(RuntimeError):
    """The announcement did not succeed within its attempts."""


class Announcer(Protocol):
    """Where the newest version is announced, and where the operator says what became of versions."""

    async def read(self) -> leases.Published:
        """What was announced last."""

    async def claim(self, epoch: int) -> None:
        """Write the epoch before anything else; StaleEpochError when a higher one is there."""

    async def announce(self, version: WeightVersion, digest: str, epoch: int) -> None:
        """Announce a version; StaleEpochError when a later trainer announced since."""

    async def weight_sync(self) -> leases.WeightSyncState:
        """The operator's word; an empty one when it cannot be read."""


class LeaseAnnouncer:
    """The real one: two Leases in the training's namespace."""

    def __init__(self, client: kube.Kube, training: str, namespace: str) -> None:
        self._kube = client
        self._published = kube.path(_LEASES, "leases", namespace, names.published_lease(training))
        self._weight_sync = kube.path(_LEASES, "leases", namespace, names.weight_sync_lease(training))

    async def read(self) -> leases.Published:
        return leases.parse_published(await self._retried_get())

    async def claim(self, epoch: int) -> None:
        await self._write(epoch, {"metadata": {"annotations": {names.ANNOTATION_TRAINER_EPOCH: str(epoch)}}})

    async def announce(self, version: WeightVersion, digest: str, epoch: int) -> None:
        await self._write(epoch, leases.render_published(version, digest, epoch))

    async def weight_sync(self) -> leases.WeightSyncState:
        try:
            return leases.parse_weight_sync(await self._kube.get(self._weight_sync))
        except (kube.KubeError, leases.LeaseFormatError, aiohttp.ClientError, TimeoutError) as error:
            log.warning("the weight sync's Lease cannot be read: no version is deleted", extra={"error": str(error)})
            return leases.WeightSyncState()

    async def _write(self, epoch: int, patch: kube.Object) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                lease = await self._kube.get(self._published)
                _refuse_older(leases.parse_published(lease).trainer_epoch, epoch)
                patch["metadata"]["resourceVersion"] = lease["metadata"]["resourceVersion"]
                await self._kube.merge_patch(self._published, patch, field_manager="openclaw-trainer")
                return
            except (kube.KubeError, aiohttp.ClientError, TimeoutError) as error:
                await _wait_or_give_up(error, attempt)

    async def _retried_get(self) -> kube.Object:
        for attempt in range(_ATTEMPTS):
            try:
                return await self._kube.get(self._published)
            except (kube.KubeError, aiohttp.ClientError, TimeoutError) as error:
                await _wait_or_give_up(error, attempt)
        raise AssertionError("unreachable: the last attempt raises")


class FileAnnouncer:
    """For a laptop and for tests: the same three values in a JSON file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    async def read(self) -> leases.Published:
        return leases.Published.model_validate(self._load())

    async def claim(self, epoch: int) -> None:
        self._store({"trainer_epoch": epoch}, epoch)

    async def announce(self, version: WeightVersion, digest: str, epoch: int) -> None:
        self._store({"version": version.model_dump(), "digest": digest, "trainer_epoch": epoch}, epoch)

    async def weight_sync(self) -> leases.WeightSyncState:
        return leases.WeightSyncState()

    def _load(self) -> dict[str, object]:
        known: dict[str, object] = json.loads(self._file.read_text()) if self._file.exists() else {}
        return known

    def _store(self, fields: dict[str, object], epoch: int) -> None:
        known = self._load()
        _refuse_older(leases.Published.model_validate(known).trainer_epoch, epoch)
        scratch = self._file.with_suffix(".tmp")
        scratch.write_text(json.dumps(known | fields))
        scratch.replace(self._file)


def _refuse_older(announced: int, epoch: int) -> None:
    if announced > epoch:
        raise StaleEpochError(f"trainer epoch {announced} has announced; this one is {epoch}")


async def _wait_or_give_up(error: Exception, attempt: int) -> None:
    """Sleep before the next attempt (0.2 s doubling to 10 s); AnnounceError after the last one."""
    if attempt == _ATTEMPTS - 1:
        raise AnnounceError(f"the published Lease cannot be reached: {error}") from error
    await asyncio.sleep(min(0.2 * 2**attempt, 10.0))
