"""The weight sync where versions are LoRA adapters: nothing is held, nothing is paused.

    Idle ──new target──▶ Preparing ──files checked, target.json written──▶ Pausing: one write claims the epoch
      ▲                                                                       │ nobody pauses
      │                                                                       ▼
      │                                                          Updating: engines load it beside the rest
      │                                                                       │ all done, or deadline
      └── Retain: engines unload what nobody uses any more ◀── Releasing ◀────┘
                                                               one write: serving-version, and gateways are told

A request names its adapter, so gateways go over to the new one when they hear of it, request by request, and whatever
runs keeps the old one to its end. Everything else is the machine's own: targets, failures, engines that fell behind.
The epoch is claimed before an engine is touched: no two leaders change engines under the same one.
"""

from openclaw_core.leases import WeightSyncState
from openclaw_operator.weightsync import contents
from openclaw_operator.weightsync import model as m
from openclaw_operator.weightsync.machine import Machine


class SwapMachine(Machine):
    """A machine whose runs hold no Lease."""

    def __init__(self, identity: str, now: float) -> None:
        super().__init__(identity, now)
        self._began_at = now
        self._left_at: dict[str, float] = {}
        """When each version stopped being one of those served, for those that did so within the grace."""
        self._were_served: set[str] = set()
        self._asked_to_retain: dict[str, float] = {}

    def _taken(self, lease: WeightSyncState, target: str, seconds: int) -> WeightSyncState:
        return contents.claimed(lease, claimant=self.identity, target=target)

    def _advance(self, world: m.World) -> None:
        super()._advance(world)
        if self.lease is not None and self.lease.serving_version is not None:
            canary = self.lease.canary.version if self.lease.canary is not None else None
            self._note_switch({version for version in (self.lease.serving_version, canary) if version})
            loading = self._run.version if self._run is not None else None
            self._retain_only({self.lease.serving_version, canary, self.target(), loading})

    def _note_switch(self, served: set[str]) -> None:
        self._left_at |= dict.fromkeys(self._were_served - served, self.now)
        self._were_served = served
        self._left_at = {
            version: left
            for version, left in self._left_at.items()
            if self.now - left < m.SWITCH_GRACE_SEC and version not in served
        }

    def _retain_only(self, wanted: set[str | None]) -> None:
        """Adapters nobody wants may go, each a grace after its own switch, however quickly the next ones follow.

        What was left before this process began is not known: for the length of a grace nothing goes.
        """
        if self.now - self._began_at < m.SWITCH_GRACE_SEC:
            return
        kept = {version for version in wanted if version} | self._left_at.keys()
        for uid, state in self.fleet.states(self.now).items():
            asked = self._asked_to_retain.get(uid, float("-inf"))
            if set(state.adapters) - kept and self.now - asked >= m.POLL_IDLE_SEC:
                self._asked_to_retain[uid] = self.now
                self._out.append(m.RetainAdapters(uid, tuple(sorted(kept))))
