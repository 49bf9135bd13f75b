"""What the status says of a weight sync: its state, every engine, and the one most telling trouble. Pure."""

from openclaw_core.leases import WeightSyncState
from openclaw_core.status import RolloutState
from openclaw_core.versions import BASE
from openclaw_operator.reasons import Reason
from openclaw_operator.weightsync import canary as canaries
from openclaw_operator.weightsync import holds, rollout
from openclaw_operator.weightsync import model as m
from openclaw_operator.weightsync import target as targets
from openclaw_operator.weightsync.machine import Machine
from openclaw_operator.weightsync.rollout import Scores


def view(machine: Machine) -> m.SyncView:
    """A snapshot of the machine."""
    world, states = machine.world, machine.fleet.states(machine.now)
    published = world.published.version if world is not None else None
    pods = world.engines if world is not None else ()
    return m.SyncView(
        phase=machine.phase,
        lease=machine.last_lease,
        target=machine.target(),
        published=str(published) if published is not None else None,
        engines=tuple(m.EngineView(pod.name, states.get(pod.uid)) for pod in pods),
        last_sync=machine.last_sync,
        trouble=_trouble(machine),
        request=_request(machine),
        rollout=_rollout(machine),
        rollout_wanted=world is not None and world.rollout is not None,
    )


def _rollout(machine: Machine) -> m.RolloutView | None:
    """The canary of now, the version that waits to be one, or the canary that ended last."""
    world, lease = machine.world, machine.last_lease
    if world is None or lease is None or world.rollout is None:
        return None
    if lease.canary is not None:
        state: RolloutState = "Promoting" if lease.canary.promoted else "Serving"
        measured = machine.canaries.measured
        return canaries.view(lease, measured, state, rollout.compared(*canaries.scores(lease, measured)))
    waiting = canaries.waiting(lease, world, machine.fleet.ready(machine.now))
    if waiting is None:
        return machine.canaries.last
    version, why = waiting
    sides = m.RolloutSide(version, Scores()), m.RolloutSide(lease.serving_version or "", Scores())
    return m.RolloutView("Waiting", None, *sides, why)


def _trouble(machine: Machine) -> m.Trouble | None:
    """Why the fleet is not where it should be; None when it is, or is on its way."""
    world, lease, fleet = machine.world, machine.last_lease, machine.fleet
    if world is None or lease is None:
        return None
    wanted = targets.wanted(world.published, world.pinned)
    if wanted is not None and wanted in lease.bad_versions and (given_up := _given_up(machine, world, wanted)):
        return given_up
    if machine.last_error and lease.attempt:
        return m.Trouble(Reason.SYNC_FAILED, f"the last sync reached no engine: {machine.last_error}")
    for uid, preparation in fleet.preparations.items():
        in_use = preparation.version in (machine.target(), machine.wanted_of(uid))
        if in_use and preparation.error is not None and fleet.version(uid) != preparation.version:
            text = f"engine {fleet.name(uid)} cannot prepare {preparation.version}: {preparation.error}"
            return m.Trouble(Reason.PREPARE_FAILED, text)
    for uid, solo in fleet.solos.items():
        if solo.error is not None:
            text = f"engine {fleet.name(uid)} does not reach {machine.wanted_of(uid)}: {solo.error}"
            return m.Trouble(Reason.ENGINES_DIFFER, text)
    return _waiting_trouble(machine, world, lease) or _share_trouble(machine, world, lease)


def _given_up(machine: Machine, world: m.World, bad: str) -> m.Trouble | None:
    """A version that is not tried again. That a rollout took it back is no fault, unless engines could not load it."""
    if not _decides(world):
        text = f"version {bad} failed in {m.HOLDS_UNTIL_BAD} holds and is not served"
        return m.Trouble(Reason.VERSION_BAD, f"{text}: {machine.last_error}" if machine.last_error else text)
    version, why = machine.canaries.failed
    text = f"version {bad} was canary and is not served: {why}"
    return m.Trouble(Reason.VERSION_BAD, text) if version == bad else None


def _decides(world: m.World) -> bool:
    """A rollout decides which version is served."""
    return world.rollout is not None and world.pinned is None


def _waiting_trouble(machine: Machine, world: m.World, lease: WeightSyncState) -> m.Trouble | None:
    """A version that waits to become canary for longer than a canary may take: sampled turns grow stale."""
    waiting = canaries.waiting(lease, world, machine.fleet.ready(machine.now))
    if waiting is None or world.rollout is None:
        return None
    limit = world.rollout.max_duration_sec
    if machine.canaries.waited_sec(machine.now) < limit:
        return None
    version, why = waiting
    text = f"version {version} has waited for more than {limit} s (maxDurationSec) to become canary: {why}"
    return m.Trouble(Reason.CANARY_WAITS, f"{text}; mend the others, lower canaryReplicas, or take rollout out")


def _share_trouble(machine: Machine, world: m.World, lease: WeightSyncState) -> m.Trouble | None:
    share = holds.used_sec(lease.held, machine.wall) / m.HOLD_SHARE_WINDOW_SEC
    waits = holds.length(lease, world.pause_timeout_sec, machine.wall) is None
    if share <= m.HOLD_SHARE_LIMIT and not waits:
        return None
    text = f"submissions were paused {share:.0%} of the last 10 minutes (limit {m.HOLD_SHARE_LIMIT:.0%})"
    return m.Trouble(Reason.HOLDS_TOO_LONG, f"{text}; the next sync waits until its pause fits in" if waits else text)


def _request(machine: Machine) -> m.RequestView | None:
    """What became of the one-shot sync asked for last."""
    world, lease = machine.world, machine.last_lease
    if world is None or lease is None or not world.sync_request:
        return None
    asked = world.sync_request
    if asked == machine.refused_request:
        return m.RequestView(asked[:80], "Invalid", "use a new word of up to 63 letters, digits and . _ : - each time")
    if asked != lease.sync_request:
        return m.RequestView(asked, "Waiting")
    wanted = targets.wanted(world.published, world.pinned) or str(BASE)
    if wanted in lease.bad_versions:
        why = "was rolled back" if _decides(world) else f"failed in {m.HOLDS_UNTIL_BAD} holds"
        return m.RequestView(asked, "Failed", f"version {wanted} {why}")
    behind = [pod.name for pod in world.engines if machine.fleet.version(pod.uid) != wanted]
    if wanted != lease.serving_version or behind:
        return m.RequestView(
            asked, "Running", f"{len(behind)} of {len(world.engines)} engines do not serve {wanted} yet"
        )
    return m.RequestView(asked, "Succeeded", f"every engine serves {wanted}")
