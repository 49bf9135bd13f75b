"""Values of the weight sync: what the machine is told, what it asks for, what it reports. No behaviour."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal

from openclaw_core.config.policy_serving import Rollout
from openclaw_core.leases import Published, WeightSyncState
from openclaw_core.status import LastSync, RolloutState
from openclaw_core.wire import AgentState, Paused, RolloutScores, Synced
from openclaw_operator.reasons import Reason
from openclaw_operator.weightsync.rollout import Scores

ACK_WAIT_SEC = 0.5
"""Longest wait for gateways to confirm a hold; safety never depends on them."""
RELEASE_MARGIN_SEC = 5.0
"""Engine work ends this long before the hold does."""
STRAGGLER_FLOOR_SEC = 0.5
"""Once one engine has the version, the others get this long, or as long again as the first took."""
PREPARE_PATIENCE_SEC = 120.0
"""Once one engine is prepared, the others get this long before the hold goes ahead without them."""
PREPARE_RETRY_SEC = 5.0
POLL_SOON_SEC = 1.0
POLL_IDLE_SEC = 5.0
UNHURRIED_TRAININGS = 100
"""Up to so many trainings agents are asked at the usual pace; of more of them, each as much more seldom."""
POLL_SILENT_PART = 12.0
POLL_SILENT_MAX_SEC = 120.0
"""A silent agent is asked again after a twelfth of its silence (5 s at GIVEN_UP_SEC), at the latest after this long; at
the usual pace. What makes it answer again mostly shows in its pod, and is followed by a question at once."""
FRESH_SEC = 15.0
"""An agent is reachable when it answered within this time (at the usual pace; at another, so long after it was due)."""
FIRST_WORD_SEC = 3.5
"""A machine that begins hears every agent, or waits this long, before it takes an epoch: the Lease may be an older one
that somebody put back, and agents know better."""
GIVEN_UP_SEC = 60.0
"""An engine that is neither Ready nor reachable for this long does not count as serving."""
RETRY_READ_SEC = 0.5
SWITCH_GRACE_SEC = 5.0
"""After a switch of adapters gateways get this long to hear of it before the old one may be unloaded."""
SOLO_RETRY_SEC = 5.0
SOLO_RETRY_MAX_SEC = 120.0
FAILED_HOLD_RETRY_SEC = 5.0
HOLDS_UNTIL_BAD = 2
HOLD_SHARE_LIMIT = 0.10
HOLD_SHARE_WINDOW_SEC = 600.0
UNHEARD_EPOCHS = 16
"""A Lease that was lost is written again so far above every epoch heard of: another leader may have taken some that
nobody heard of yet, and orders under them must come too late."""
KEEP_RECENT_SEC = 120.0
"""A version that was the target this recently is kept: a kubelet may still mount the older ConfigMap."""
RELEASABLE_SPAN = 256
SYNC_REQUEST_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,62}")
"""Ids of one-shot syncs that are taken up."""


class Phase(StrEnum):
    IDLE = "Idle"
    PREPARING = "Preparing"
    PAUSING = "Pausing"
    UPDATING = "Updating"
    RELEASING = "Releasing"


# ---------------------------------------------------------------- told


@dataclass(frozen=True)
class EnginePod:
    """An engine pod with an address. `ready` is Kubernetes' word."""

    uid: str
    name: str
    ip: str
    ready: bool


@dataclass(frozen=True)
class GatewayPod:
    uid: str
    name: str
    ip: str
    ready: bool


@dataclass(frozen=True)
class World:
    """What the reconcile saw."""

    engines: tuple[EnginePod, ...]
    gateways: tuple[GatewayPod, ...]
    published: Published
    pinned: str | None
    pause_timeout_sec: int
    target_missing: bool = False
    """ConfigMap `<name>-target` does not exist (any more)."""
    lease_version: str = ""
    """resourceVersion of Lease `<name>-weight-sync` as last listed; empty: not there."""
    sync_request: str | None = None
    """Value of the training's annotation `openclawrl.io/sync`: one sync is asked for under this id."""
    rollout: Rollout | None = None
    """How new versions are tried on some engines first; None: they are not."""
    sender: str | None = None
    """Address of the trainer pod that broadcasts versions (`transfer: distributed`); None: engines read the volume."""
    pace: int = 1
    """How many times as seldom as usual an agent is asked that is at rest, or silent (`pace`)."""


def pace(trainings: int) -> int:
    """The pace of agents of so many trainings: a power of 2, for each change of it is news to every one of them."""
    slower = 1
    while slower * UNHURRIED_TRAININGS < trainings:
        slower *= 2
    return slower


@dataclass(frozen=True)
class LeaseSeen:
    """Content of the Lease: answer of a read, or of our own write."""

    state: WeightSyncState
    resource_version: str


@dataclass(frozen=True)
class LeaseFailed:
    """A read or write of the Lease failed; whether a write took effect is unknown unless `conflict`."""

    error: str


@dataclass(frozen=True)
class LeaseGarbled:
    """The Lease was read and holds what no writer of ours produces: somebody edited it."""

    error: str
    resource_version: str


@dataclass(frozen=True)
class TargetWritten:
    """ConfigMap `<name>-target` now names `version`; None: the write failed."""

    version: str | None


@dataclass(frozen=True)
class AgentSeen:
    """Answer of an agent's GET /state; None: unreachable."""

    uid: str
    state: AgentState | None


@dataclass(frozen=True)
class PrepareEnded:
    uid: str
    version: str
    error: str | None


@dataclass(frozen=True)
class SyncEnded:
    """POST /sync ended. `answer` None: no usable answer (`error` says why). `refused`: the agent did not try."""

    uid: str
    epoch: int
    version: str
    answer: Synced | None
    error: str | None = None
    refused: bool = False


@dataclass(frozen=True)
class GatewayAcked:
    uid: str
    epoch: int


@dataclass(frozen=True)
class Measured:
    """What store and trainer say of the versions served."""

    scores: RolloutScores | None = None
    drifts: tuple[tuple[str, float], ...] = ()
    """Masked mean |log π_old − log π_rollout| of a version's own samples of lag 0, by version, newest last."""


@dataclass(frozen=True)
class Tick:
    """Time passed."""


Told = (
    World
    | LeaseSeen
    | LeaseFailed
    | LeaseGarbled
    | TargetWritten
    | AgentSeen
    | PrepareEnded
    | SyncEnded
    | GatewayAcked
    | Measured
    | Tick
)


# ---------------------------------------------------------------- asked for


@dataclass(frozen=True)
class ReadLease:
    """GET the Lease; answered by LeaseSeen or LeaseFailed."""


@dataclass(frozen=True)
class WriteLease:
    """Write the Lease under a resourceVersion precondition; answered by LeaseSeen or LeaseFailed."""

    state: WeightSyncState
    resource_version: str


@dataclass(frozen=True)
class WriteTarget:
    version: str


@dataclass(frozen=True)
class PollAgent:
    uid: str


@dataclass(frozen=True)
class PrepareEngine:
    uid: str
    version: str


@dataclass(frozen=True)
class SyncEngine:
    uid: str
    epoch: int
    version: str
    deadline_sec: float
    again: bool = False
    """An earlier try at this version failed: it is read from the volume, for a sender may be why."""


@dataclass(frozen=True)
class RetainAdapters:
    """Tell an engine which LoRA adapters may stay; answered by the next AgentSeen."""

    uid: str
    versions: tuple[str, ...]


@dataclass(frozen=True)
class TellGateways:
    """Post to the internal port of every gateway; answered by GatewayAcked, or not at all."""

    paused: Paused


@dataclass(frozen=True)
class Announce:
    """Something an admin should read: an event, and for a sync the record of it."""

    kind: Literal["Normal", "Warning"]
    reason: Reason
    message: str


Action = (
    ReadLease
    | WriteLease
    | WriteTarget
    | PollAgent
    | PrepareEngine
    | SyncEngine
    | RetainAdapters
    | TellGateways
    | Announce
)


# ---------------------------------------------------------------- reported


@dataclass(frozen=True)
class EngineView:
    pod: str
    state: AgentState | None


@dataclass(frozen=True)
class Trouble:
    """Why the sync is degraded."""

    reason: Reason
    message: str


@dataclass(frozen=True)
class RequestView:
    """What became of the one-shot sync asked for last."""

    id: str
    result: Literal["Waiting", "Running", "Succeeded", "Failed", "Invalid"]
    message: str = ""


@dataclass(frozen=True)
class RolloutSide:
    """One of the two versions that are compared."""

    version: str
    scores: Scores


@dataclass(frozen=True)
class RolloutView:
    """The canary of now, or the one that ended last."""

    state: RolloutState
    since: str | None
    canary: RolloutSide
    stable: RolloutSide
    message: str


@dataclass(frozen=True)
class SyncView:
    """What status says of the sync."""

    phase: Phase
    lease: WeightSyncState | None
    target: str | None
    published: str | None
    engines: tuple[EngineView, ...]
    last_sync: LastSync | None
    trouble: Trouble | None
    request: RequestView | None = None
    rollout: RolloutView | None = None
    rollout_wanted: bool = False
    """`policyServing.rollout` is set."""


# ---------------------------------------------------------------- remembered


@dataclass
class Agent:
    """What is known of one engine's agent."""

    state: AgentState | None = None
    first_seen_at: float = 0.0
    answered_at: float = float("-inf")
    """When the question left that `state` answers: a process that slept finds old answers waiting."""
    answered_round: int = 0
    """`sent_round` of what it answered last; 0 once an order may have made that old."""
    sent_at: float = float("-inf")
    """When the last question left."""
    sent_round: int = 0
    """Rounds of questions (`Fleet.ask_again`) that had begun by then."""
    asked_at: float = float("-inf")
    """`sent_at`, or never where it is to be asked at once."""
    asking: bool = False
    moved_at: float = 0.0
    """When its pod last became Ready or stopped being so, or was first seen."""


@dataclass
class Preparation:
    version: str
    asked_at: float
    asking: bool = True
    error: str | None = None


@dataclass
class Solo:
    """Updates of one engine alone to one version."""

    version: str
    tries: int = 0
    not_before: float = float("-inf")
    error: str | None = None


@dataclass
class HoldRun:
    """The sync under way, with a hold or (`held` False) without one. Times are monotonic seconds."""

    epoch: int
    version: str
    duration_sec: int
    issued_at: float
    issued_wall: datetime
    confirmed: bool = False
    confirmed_at: float = 0.0
    participants: frozenset[str] = frozenset()
    gateways: frozenset[str] = frozenset()
    acked: set[str] = field(default_factory=set)
    missing: tuple[str, ...] = ()
    """Names of the gateways without a word when engines began to change."""
    updating_since: float = 0.0
    updated_at: float = 0.0
    results: dict[str, SyncEnded] = field(default_factory=dict)
    first_success_at: float | None = None
    release: WeightSyncState | None = None
    held: bool = True
    shortened: bool = False
    """Less than `pauseTimeoutSec` was left of what ten minutes may hold."""
    counted_sec: float = 0.0
    """Seconds of this hold that its release counts in the Lease."""

    def untried(self) -> bool:
        """Every engine refused before it tried (it starts, say): that tells nothing about the version."""
        ended = [self.results.get(uid) for uid in self.participants]
        return bool(ended) and all(result is not None and result.refused for result in ended)

    def seconds(self, now: float) -> float:
        """Time since the hold was written; 0 without one."""
        return max(0.0, now - self.issued_at) if self.held else 0.0

    def paused_sec(self, now: float) -> float:
        """How long submissions were paused at most: it ends by itself after `duration_sec`."""
        return min(self.seconds(now), float(self.duration_sec))

    def successes(self) -> Mapping[str, Synced]:
        """Engines that have the version, by pod uid."""
        found = {uid: ended.answer for uid, ended in self.results.items() if ended.answer is not None}
        return {uid: answer for uid, answer in found.items() if answer.ok and answer.version == self.version}
