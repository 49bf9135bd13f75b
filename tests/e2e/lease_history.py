"""Every state a training's two Leases went through, and what must never be seen in them. The fold is pure.

    <name>-published    ──▶ announced: version and trainer epoch, one entry per change
    <name>-weight-sync  ──▶ served: version, one entry per change;  holds: epoch, when it was first seen, for how long

`watch` feeds it from the API server and resumes where it broke, so that no state slips through while things die.
"""

import asyncio
import time
from dataclasses import dataclass, field
from itertools import pairwise

import aiohttp

from openclaw_core import kube, leases, names
from openclaw_core.leases import Hold, Published, WeightSyncState
from openclaw_core.versions import BASE, WeightVersion

_AGAIN_SEC = 0.5


@dataclass(frozen=True)
class SeenHold:
    """A hold and when we first saw it, in seconds of `time.monotonic`."""

    hold: Hold
    seen_at: float


@dataclass
class LeaseHistory:
    announced: list[tuple[WeightVersion, int]] = field(default_factory=list)
    """(version, trainer epoch) in the order they were announced."""
    served: list[WeightVersion] = field(default_factory=list)
    left_at: dict[str, float] = field(default_factory=dict)
    """When each version was seen to be no longer the served one, in seconds of `time.monotonic`."""
    holds: list[SeenHold] = field(default_factory=list)
    trainer_epochs: list[int] = field(default_factory=list)
    newest: WeightSyncState = field(default_factory=WeightSyncState)
    _hold: Hold | None = None

    def see_published(self, state: Published) -> None:
        if not self.trainer_epochs or state.trainer_epoch != self.trainer_epochs[-1]:
            self.trainer_epochs.append(state.trainer_epoch)
        if state.version is not None and (not self.announced or self.announced[-1][0] != state.version):
            self.announced.append((state.version, state.trainer_epoch))

    def see_weight_sync(self, state: WeightSyncState, now: float) -> None:
        self.newest = state
        if state.serving_version is not None:
            version = WeightVersion.parse(state.serving_version)
            if not self.served or self.served[-1] != version:
                self.left_at |= {str(before): now for before in self.served[-1:]}
                self.left_at.pop(str(version), None)
                self.served.append(version)
        if state.hold is not None and state.hold != self._hold:
            self.holds.append(SeenHold(state.hold, now))
        self._hold = state.hold

    def announced_number(self) -> int:
        """Number of the newest announced version, 0 before the first."""
        return self.announced[-1][0].number if self.announced else BASE.number

    def served_number(self) -> int:
        return self.served[-1].number if self.served else BASE.number

    def first_announced_by(self, trainer_epoch: int) -> WeightVersion | None:
        """The first version that this trainer made itself; None while it made none."""
        return next((version for version, epoch in self.announced if epoch == trainer_epoch), None)

    def faults(self) -> list[str]:
        """Numbers used twice or out of order, trainers that came back from the past, epochs of holds used twice."""
        numbers = [version.number for version, _ in self.announced]
        serving = [version.number for version in self.served]
        epochs = [seen.hold.epoch for seen in self.holds]
        return [
            *_not_rising("announced version", numbers),
            *_not_rising("served version", serving),
            *_not_rising("trainer epoch", self.trainer_epochs),
            *_not_rising("epoch of a hold", epochs),
        ]


def _not_rising(what: str, values: list[int]) -> list[str]:
    return [f"{what} {later} came after {earlier}" for earlier, later in pairwise(values) if later <= earlier]


async def watch(client: kube.Kube, namespace: str, training: str, history: LeaseHistory) -> None:
    """Follow both Leases until cancelled."""
    collection, version = kube.path("coordination.k8s.io/v1", "leases", namespace), ""
    while True:
        try:
            if not version:
                listed = await client.list(collection)
                version = listed["metadata"]["resourceVersion"]
                for lease in listed["items"]:
                    _see(lease, training, history)
            async for kind, lease in client.watch(collection, resource_version=version):
                version = lease["metadata"]["resourceVersion"]
                if kind in ("ADDED", "MODIFIED"):
                    _see(lease, training, history)
        except kube.GoneError:
            version = ""
        except (kube.KubeError, aiohttp.ClientError, TimeoutError):
            await asyncio.sleep(_AGAIN_SEC)


def _see(lease: kube.Object, training: str, history: LeaseHistory) -> None:
    name = lease["metadata"]["name"]
    if name == names.published_lease(training):
        history.see_published(leases.parse_published(lease))
    elif name == names.weight_sync_lease(training):
        history.see_weight_sync(leases.parse_weight_sync(lease), time.monotonic())
