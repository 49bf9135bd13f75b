"""Which version engines should serve, and which the trainer may delete. Pure.

Target = the pinned version, else the promoted canary or what is served where a rollout is set, else the newest
published one; where that is bad, what is served. Engines never pick "newest" themselves.
"""

from collections.abc import Iterable
from functools import lru_cache

from openclaw_core.leases import Published, WeightSyncState
from openclaw_core.versions import BASE, VersionFormatError, WeightVersion
from openclaw_operator.weightsync.model import RELEASABLE_SPAN, World


def wanted(published: Published, pinned: str | None) -> str | None:
    """Version the user or the trainer asks for, good or bad; None before the first is published."""
    return pinned or (str(published.version) if published.version is not None else None)


def choose(
    lease: WeightSyncState,
    published: Published,
    pinned: str | None,
    loaded: str | None = None,
    *,
    rollout: bool = False,
) -> str:
    """Version string of the target. `loaded`: what engines serve, should the Lease have lost what is served."""
    asked = wanted(published, pinned)
    if rollout and pinned is None:
        asked = lease.canary.version if lease.canary is not None and lease.canary.promoted else None
    if asked is not None and asked not in lease.bad_versions:
        return asked
    return lease.serving_version or loaded or str(BASE)


def candidate(lease: WeightSyncState, world: World) -> str | None:
    """The version that should become canary, were there none; None: nothing new."""
    newest = wanted(world.published, None)
    if world.rollout is None or world.pinned is not None or lease.serving_version is None or newest is None:
        return None
    return newest if newest != lease.serving_version and newest not in lease.bad_versions else None


def releasable(published: Published, kept: Iterable[str | None]) -> tuple[int, ...]:
    """Numbers the trainer may delete: all older than the newest two, except those of `kept`, the newest 256 of them."""
    if published.version is None:
        return ()
    newest = published.version.number
    protected = {number for number in map(number_of, kept) if number is not None}
    oldest = max(1, newest - RELEASABLE_SPAN)
    return tuple(number for number in range(oldest, newest - 1) if number not in protected)


@lru_cache(maxsize=1024)
def number_of(version: str | None) -> int | None:
    """The number a version is published under; None where it is no version."""
    if not version:
        return None
    try:
        return WeightVersion.parse(version).number
    except VersionFormatError:
        return None
