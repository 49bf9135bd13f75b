"""Scores by weight version while a canary serves beside the stable one: what the operator compares.

Counters `rollout:<epoch of the canary>:<version>:<score>`, counted in the commit that scores the turn. A turn counts
for the version that sampled all of it; one that a weight sync fell into counts for none.
"""

from collections.abc import Mapping

import orjson
from sqlalchemy import delete, select

from openclaw_core import wire
from openclaw_gateway.store.schema import contents, counters
from openclaw_gateway.store.transaction import Transaction

_PREFIX = "rollout"


def count(tx: Transaction, epoch: int, turn_id: int, score: int) -> None:
    """One more score of the version that answered."""
    spans = tx.connection.execute(select(contents.c.spans).where(contents.c.turn_id == turn_id)).scalar()
    versions = {str(span["version"]) for span in orjson.loads(spans or b"[]")}
    if len(versions) == 1:
        tx.count(f"{_PREFIX}:{epoch}:{versions.pop()}:{score}")


def scores(counted: Mapping[str, int]) -> wire.RolloutScores | None:
    """Of the newest canary; None before the first. `counted`: every counter by name."""
    found = _by_epoch(counted)
    if not found:
        return None
    newest = max(found)
    by_version: dict[str, dict[str, int]] = {}
    for name in found[newest]:
        _, _, version, score = name.split(":")
        by_version.setdefault(version, {})[score] = counted[name]
    return wire.RolloutScores(epoch=newest, scores=by_version)


def forget_old(tx: Transaction, counted: Mapping[str, int]) -> None:
    """Canaries before the newest are decided."""
    found = _by_epoch(counted)
    old = [name for epoch, names in found.items() if epoch < max(found) for name in names]
    if old:
        tx.connection.execute(delete(counters).where(counters.c.name.in_(old)))


def _by_epoch(counted: Mapping[str, int]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for name in counted:
        if name.startswith(f"{_PREFIX}:"):
            found.setdefault(int(name.split(":")[1]), []).append(name)
    return found
