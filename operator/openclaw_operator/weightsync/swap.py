"""The weight sync where versions are LoRA adapters: nothing is held, nothing is paused.

    Idle ──new target──▶ Preparing ──files checked, target.json written──▶ Updating: engines load it beside the rest
      ▲                                                                        │ all done, or deadline
      └── Retain: engines unload what nobody uses any more ◀── Releasing ◀─────┘
                                                               one write: serving-version, and gateways are told

A request names its adapter, so gateways go over to the new one when they hear of it, request by request, and whatever
runs keeps the old one to its end. Everything else is the machine's own: targets, failures, engines that fell behind.
The epoch still grows by one with each swap, so that late word of an older one changes nothing.
"""

from openclaw_core.leases import WeightSyncState
from openclaw_operator.weightsync import model as m
from openclaw_operator.weightsync.machine import Machine
from openclaw_operator.weightsync.model import Phase


class SwapMachine(Machine):
    """A machine whose runs hold no Lease."""

    def __init__(self, identity: str, now: float) -> None:
        super().__init__(identity, now)
        self._switched_at = now
        self._asked_to_retain: dict[str, float] = {}

    def _start_hold(self, lease: WeightSyncState, target: str, participants: frozenset[str], seconds: int) -> None:
        """Straight to the engines."""
        self._run = m.HoldRun(
            lease.epoch + 1, target, seconds, self.now, self.wall, participants=participants, held=False
        )
        self.retention.remember((lease.serving_version, target), self.now)
        self._start_updating(self._run)

    def _released(self, run: m.HoldRun, *, ours: bool) -> None:
        self._switched_at = self.now
        super()._released(run, ours=ours)

    def _idle(self, world: m.World, lease: WeightSyncState) -> None:
        super()._idle(world, lease)
        serving = lease.serving_version
        if self.phase == Phase.IDLE and serving is not None and serving == self.target():
            self._retain_only(serving)

    def _retain_only(self, serving: str) -> None:
        """Gateways had time to hear of the switch: adapters of older versions may go once their last stream ended."""
        if self.now - self._switched_at < m.SWITCH_GRACE_SEC:
            return
        for uid, state in self.fleet.states(self.now).items():
            asked = self._asked_to_retain.get(uid, float("-inf"))
            if set(state.adapters) - {serving} and self.now - asked >= m.POLL_IDLE_SEC:
                self._asked_to_retain[uid] = self.now
                self._out.append(m.RetainAdapters(uid, (serving,)))
