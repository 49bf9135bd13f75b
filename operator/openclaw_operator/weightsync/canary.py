"""When a version becomes canary, which engines serve it, and how that ends, as contents of the Lease. Pure.

    none ──newest version, enough engines──▶ serving ──rollout.decide──▶ promoted ──a hold for the others──▶ none
                                                └──▶ rolled back (bad from now on), or cancelled (spec) ──▶ none

Engines change to the canary one by one and back at once, without a hold, like any engine that differs; only a promotion
pauses submissions. A version published meanwhile waits; the newest becomes the next canary. Begin and end are epochs of
their own, so that gateways know which of two words is newer.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime

from openclaw_core.leases import Canary, WeightSyncState, format_time
from openclaw_core.status import RolloutState
from openclaw_operator.reasons import Reason
from openclaw_operator.weightsync import failures, rollout
from openclaw_operator.weightsync import model as m
from openclaw_operator.weightsync import target as targets
from openclaw_operator.weightsync.fleet import Fleet
from openclaw_operator.weightsync.rollout import Scores, Verdict


@dataclass(frozen=True)
class Step:
    """What the Lease should say next, and what an admin is told of it."""

    lease: WeightSyncState
    announce: m.Announce | None = None
    ended: RolloutState | None = None
    failure: str = ""
    """Why engines could not load the canary, if that is how it ended."""


def chosen_engines(canary: Canary, world: m.World, fleet: Fleet, now: float) -> tuple[str, ...]:
    """Engines that should serve the canary: those that do as long as their pods exist, then others that answer."""
    if world.rollout is None:
        return ()
    staying = [uid for uid in canary.engines if uid in fleet.pods]
    others = [uid for uid in fleet.ready(now) if uid not in staying]
    others.sort(key=lambda uid: fleet.version(uid) != canary.version)
    most = min(world.rollout.canary_replicas, len(fleet.pods) - 1)
    return tuple([*staying, *others][: max(0, most)])


class CanaryWatch:
    """What is remembered of canaries between two looks."""

    def __init__(self) -> None:
        self.measured = m.Measured()
        self.last: m.RolloutView | None = None
        """The canary that ended last."""
        self.failed = ("", "")
        """The last version that engines could not load as a canary, and why."""
        self._waits_since: float | None = None
        self._seen = (-1, 0.0)
        """Epoch of the canary, and when this process saw it first."""

    def step(self, lease: WeightSyncState, world: m.World, fleet: Fleet, now: float, wall: datetime) -> Step | None:
        """Begin, promote, roll back or cancel a canary; None: nothing to do. Times as the machine has them."""
        if waiting(lease, world, fleet.ready(now)) is None:
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = now
        if lease.canary is None:
            return _begin(lease, world, fleet, now, wall) if world.rollout is not None else None
        found = _next(lease, lease.canary, world, fleet, self.measured, now, self._age(lease.canary, now, wall))
        if found is not None and found.ended is not None and found.announce is not None:
            self.last = view(lease, self.measured, found.ended, found.announce.message)
            self.failed = (lease.canary.version, found.failure) if found.failure else self.failed
        return found

    def waited_sec(self, now: float) -> float:
        """How long the newest version has been waiting to become canary; 0 when it does not."""
        return now - self._waits_since if self._waits_since is not None else 0.0

    def changed(self, before: WeightSyncState, after: WeightSyncState) -> None:
        """Another version is served: that of the canary is its promotion."""
        if before.canary is not None and after.canary is None:
            new, old = scores(before, self.measured)
            self.last = view(before, self.measured, "Promoted", f"promoted: {rollout.compared(new, old)}")

    def _age(self, canary: Canary, now: float, wall: datetime) -> float:
        """Seconds since it began, by the wall clock or by ours, whichever says more: a jump cannot prolong it."""
        if self._seen[0] != canary.epoch:
            self._seen = (canary.epoch, now)
        return max((wall - canary.since).total_seconds(), now - self._seen[1])


def _next(
    lease: WeightSyncState,
    canary: Canary,
    world: m.World,
    fleet: Fleet,
    measured: m.Measured,
    now: float,
    age: float,
) -> Step | None:
    """What becomes of a canary of `age` seconds."""
    if world.rollout is None or world.pinned is not None:
        why = "spec.policyServing.rollout is gone" if world.rollout is None else f"pinnedVersion is {world.pinned}"
        return _ended(lease, canary, f"cancelled: {why}", Reason.CANARY_CANCELLED, "Cancelled")
    if canary.version in lease.bad_versions:
        text = "the other engines could not load it"
        return replace(
            _ended(lease, canary, f"rolled back: {text}", Reason.CANARY_ROLLED_BACK, "RolledBack"), failure=text
        )
    if canary.promoted:
        return None
    chosen = chosen_engines(canary, world, fleet, now)
    if chosen and all(fleet.gave_up(uid, canary.version) for uid in chosen):
        text = f"no engine loads it: {fleet.solos[chosen[0]].error}"
        return replace(_rolled_back(lease, canary, text), failure=text)
    new, old = scores(lease, measured)
    drift = dict(measured.drifts).get(canary.version)
    found = rollout.decide(world.rollout, new, old, drift=drift, elapsed_sec=age)
    if found.verdict is Verdict.PROMOTE:
        return _promoted(lease, canary, found.why)
    over = found.verdict is Verdict.ROLL_BACK and age >= world.rollout.max_duration_sec
    liked = new.mean is None or new.mean >= 0
    if over and liked and not old.turns and _serves_alone(lease, canary, chosen, fleet, now):
        return _promoted(lease, canary, f"no engine loads {lease.serving_version}, so there is nothing to compare with")
    if found.verdict is Verdict.ROLL_BACK:
        return _rolled_back(lease, canary, found.why)
    if chosen != canary.engines:
        moved = canary.model_copy(update={"engines": chosen})
        return Step(lease.model_copy(update={"epoch": lease.epoch + 1, "canary": moved}))
    return None


def _serves_alone(lease: WeightSyncState, canary: Canary, chosen: Collection[str], fleet: Fleet, now: float) -> bool:
    """The canary serves and the stable version does not: no engine that should have it does, and one has given it up;
    others may have come only now."""
    stable, others = lease.serving_version or "", [uid for uid in fleet.ready(now) if uid not in chosen]
    serves = any(fleet.version(uid) == canary.version for uid in chosen)
    nowhere = not any(fleet.version(uid) == stable for uid in others)
    return serves and nowhere and any(fleet.gave_up(uid, stable) for uid in others)


def _promoted(lease: WeightSyncState, canary: Canary, why: str) -> Step:
    text = f"canary {canary.version} is promoted over {lease.serving_version}: {why}"
    promoted = lease.model_copy(update={"canary": canary.model_copy(update={"promoted": True})})
    return Step(promoted, m.Announce("Normal", Reason.CANARY_PROMOTED, text))


def scores(lease: WeightSyncState, measured: m.Measured) -> tuple[Scores, Scores]:
    """Of canary and stable version, as far as they belong to this canary."""
    canary, found = lease.canary, measured.scores
    if canary is None or found is None or found.epoch != canary.epoch:
        return Scores(), Scores()
    new, old = found.scores.get(canary.version, {}), found.scores.get(lease.serving_version or "", {})
    return Scores.of(new), Scores.of(old)


def waits_for(world: m.World, reachable: Collection[str]) -> str | None:
    """Why the newest version is no canary yet; None: nothing stands against it."""
    if world.rollout is None or len(reachable) > world.rollout.canary_replicas:
        return None
    return f"{len(reachable)} engines answer, more than canaryReplicas ({world.rollout.canary_replicas}) are needed"


def waiting(lease: WeightSyncState, world: m.World, reachable: Collection[str]) -> tuple[str, str] | None:
    """The version that cannot become canary yet, and why."""
    version, why = targets.candidate(lease, world), waits_for(world, reachable)
    return (version, why) if version is not None and why is not None else None


def _begin(lease: WeightSyncState, world: m.World, fleet: Fleet, now: float, wall: datetime) -> Step | None:
    version = targets.candidate(lease, world)
    if version is None or world.rollout is None or waits_for(world, fleet.ready(now)) is not None:
        return None
    epoch, many = lease.epoch + 1, world.rollout.canary_replicas
    canary = Canary(version=version, epoch=epoch, share=many / max(len(fleet.pods), many + 1), since=wall)
    canary = canary.model_copy(update={"engines": chosen_engines(canary, world, fleet, now)})
    text = (
        f"{version} serves {canary.share:.0%} of sessions on {many} canary engines beside {lease.serving_version}, for "
        f"at most {world.rollout.max_duration_sec} s"
    )
    began = lease.model_copy(update={"epoch": epoch, "canary": canary})
    return Step(began, m.Announce("Normal", Reason.CANARY_BEGAN, text))


def _rolled_back(lease: WeightSyncState, canary: Canary, why: str) -> Step:
    bad = failures.with_bad(lease.bad_versions, canary.version)
    lease = lease.model_copy(update={"bad_versions": bad})
    return _ended(
        lease, canary, f"rolled back to {lease.serving_version}: {why}", Reason.CANARY_ROLLED_BACK, "RolledBack"
    )


def _ended(lease: WeightSyncState, canary: Canary, text: str, reason: Reason, state: RolloutState) -> Step:
    announce = m.Announce(
        "Normal" if reason is Reason.CANARY_CANCELLED else "Warning", reason, f"canary {canary.version} is {text}"
    )
    return Step(lease.model_copy(update={"epoch": lease.epoch + 1, "canary": None}), announce, state)


def view(lease: WeightSyncState, measured: m.Measured, state: RolloutState, message: str) -> m.RolloutView | None:
    """What the status says of the canary that the Lease names."""
    canary = lease.canary
    if canary is None:
        return None
    new, old = scores(lease, measured)
    sides = m.RolloutSide(canary.version, new), m.RolloutSide(lease.serving_version or "", old)
    return m.RolloutView(state, format_time(canary.since), *sides, message)
