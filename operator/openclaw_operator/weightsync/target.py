"""Which version engines should serve, and which the trainer may delete. Pure.

Target = the pinned version, else the newest published one; where that is bad, what is served. Engines never pick
"newest" themselves.
"""

from collections.abc import Iterable
from functools import lru_cache

from openclaw_core.leases import Published, WeightSyncState
from openclaw_core.versions import BASE, VersionFormatError, WeightVersion
from openclaw_operator.weightsync.model import RELEASABLE_SPAN


def wanted(published: Published, pinned: str | None) -> str | None:
    """Version the user or the trainer asks for, good or bad; None before the first is published."""
    return pinned or (str(published.version) if published.version is not None else None)


def choose(lease: WeightSyncState, published: Published, pinned: str | None, loaded: str | None = None) -> str:
    """Version string of the target. `loaded`: what engines serve, should the Lease have lost what is served."""
    asked = wanted(published, pinned)
    if asked is not None and asked not in lease.bad_versions:
        return asked
    return lease.serving_version or loaded or str(BASE)


def releasable(published: Published, kept: Iterable[str | None]) -> tuple[int, ...]:
    """Numbers the trainer may delete: all older than the newest two, except those of `kept`, the newest 256 of them."""
    if published.version is None:
        return ()
    newest = published.version.number
    protected = {number for number in map(_number, kept) if number is not None}
    oldest = max(1, newest - RELEASABLE_SPAN)
    return tuple(number for number in range(oldest, newest - 1) if number not in protected)


@lru_cache(maxsize=1024)
def _number(version: str | None) -> int | None:
    if not version:
        return None
    try:
        return WeightVersion.parse(version).number
    except VersionFormatError:
        return None
