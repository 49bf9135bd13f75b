"""Notices a watch that went silent: compares what a list says with what the watch has told.

    every 60 s: list (metadata only) ──▶ versions ──▶ same as the last event of each? ──no, twice──▶ the process ends

A watch behind a load balancer can die without a word, and then nothing tells. Being behind for one look is normal,
being behind with the same version for two is not. While the API server does not answer nothing is concluded.
"""

import asyncio
import logging
from collections.abc import Mapping

import aiohttp

from openclaw_core.kube import Kube, KubeError
from openclaw_operator import kinds
from openclaw_operator.training import Key

log = logging.getLogger(__name__)
LOOK_EVERY_SEC = 60.0


class SilentWatchError(RuntimeError):
    """The watch of trainings no longer tells of changes."""


class Watchdog:
    """`heard` is called for each event of the watch; `run` compares."""

    def __init__(self, kube: Kube, namespaces: tuple[str, ...] = ()) -> None:
        self._kube, self._namespaces = kube, namespaces
        self._told: dict[Key, str] = {}

    def heard(self, key: Key, version: str, deleted: bool) -> None:
        if deleted:
            self._told.pop(key, None)
        else:
            self._told[key] = version

    async def run(self) -> None:
        """Raises SilentWatchError; never returns."""
        before: dict[Key, str] = {}
        while True:
            await asyncio.sleep(LOOK_EVERY_SEC)
            try:
                listed = await self._listed()
            except (KubeError, aiohttp.ClientError, TimeoutError) as error:
                log.warning("trainings could not be listed: %s", error)
                continue
            before = self._compared(listed, before)

    def _compared(self, listed: Mapping[Key, str], before: Mapping[Key, str]) -> dict[Key, str]:
        """Trainings the watch is behind with; raises when one of them was so before."""
        behind = {key: version for key, version in listed.items() if self._told.get(key) != version}
        stuck = [key for key, version in behind.items() if before.get(key) == version]
        if stuck:
            raise SilentWatchError(f"the watch of trainings is silent: {stuck[0]} changed and it did not tell")
        return behind

    async def _listed(self) -> dict[Key, str]:
        found: dict[Key, str] = {}
        for namespace in self._namespaces or (None,):
            collection = kinds.TRAINING.collection(namespace)
            found |= {Key(*key): version for key, version in (await self._kube.versions(collection)).items()}
        return found
