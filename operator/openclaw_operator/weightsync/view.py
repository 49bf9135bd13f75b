"""What the status says of a weight sync: its state, every engine, and the one most telling trouble. Pure."""

from openclaw_operator.reasons import Reason
from openclaw_operator.weightsync import model as m
from openclaw_operator.weightsync.machine import Machine


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
    )


def _trouble(machine: Machine) -> m.Trouble | None:
    """Why the fleet is not where it should be; None when it is, or is on its way."""
    world, lease, fleet = machine.world, machine.last_lease, machine.fleet
    if world is None or lease is None:
        return None
    published = world.published.version
    if published is not None and str(published) in lease.bad_versions and world.pinned is None:
        text = f"version {published} failed in {m.HOLDS_UNTIL_BAD} holds and is not served"
        return m.Trouble(Reason.VERSION_BAD, f"{text}: {machine.last_error}" if machine.last_error else text)
    if machine.last_error and lease.attempt:
        return m.Trouble(Reason.SYNC_FAILED, f"the last sync reached no engine: {machine.last_error}")
    for uid, preparation in fleet.preparations.items():
        wanted = preparation.version in (machine.target(), lease.serving_version)
        if wanted and preparation.error is not None and fleet.version(uid) != preparation.version:
            text = f"engine {fleet.name(uid)} cannot prepare {preparation.version}: {preparation.error}"
            return m.Trouble(Reason.PREPARE_FAILED, text)
    for uid, solo in fleet.solos.items():
        if solo.error is not None:
            text = f"engine {fleet.name(uid)} does not reach {lease.serving_version}: {solo.error}"
            return m.Trouble(Reason.ENGINES_DIFFER, text)
    return _share_trouble(machine)


def _share_trouble(machine: Machine) -> m.Trouble | None:
    while machine.holds and machine.now - machine.holds[0][0] > m.HOLD_SHARE_WINDOW_SEC:
        machine.holds.popleft()
    share = sum(seconds for _, seconds in machine.holds) / m.HOLD_SHARE_WINDOW_SEC
    if share <= m.HOLD_SHARE_LIMIT:
        return None
    text = f"submissions were paused {share:.0%} of the last 10 minutes (limit {m.HOLD_SHARE_LIMIT:.0%})"
    return m.Trouble(Reason.HOLDS_TOO_LONG, text)
