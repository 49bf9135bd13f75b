"""One training's weight sync, whole, and what must be true of it at every moment.

Checked while it runs, by an AssertionError at the moment it is broken:
- no gateway refuses past the deadline of the hold it saw (`gateways`);
- an older epoch never changes an engine after a newer one (`engines`);
- a hold is never renewed, its epoch never used twice, and an epoch names one served version only;
- no engine is sent to, or still starts with, a version that the trainer was allowed to delete.
Checked by `settle` once faults stopped: everything converged, SGLang runs, holds took at most a tenth of any ten
minutes.
"""

import itertools

from openclaw_core.config.policy_serving import Rollout
from openclaw_core.leases import Published, WeightSyncState
from openclaw_core.versions import BASE, WeightVersion
from openclaw_core.wire import RolloutScores
from openclaw_operator.weightsync import holds
from openclaw_operator.weightsync import model as m
from openclaw_operator.weightsync.machine import Machine
from tests.fakes.sync_system.engines import Engine, number
from tests.fakes.sync_system.gateways import Gateway
from tests.fakes.sync_system.lease_server import LeaseServer
from tests.fakes.sync_system.network import Network
from tests.fakes.sync_system.operators import Operator
from tests.fakes.sync_system.timeline import Timeline

PAUSE_TIMEOUT_SEC = 10
KUBELET_LAG_SEC = 60.0
QUIET_LIMIT_SEC = 1500.0
"""After faults stop: longest backoffs and a full ten minutes' wait for the share of holds."""


def version(number: int) -> str:
    return str(WeightVersion(number=number, digest8=f"{number:08x}")) if number else str(BASE)


class System:
    """Starts with `engines` engines, `gateways` gateways and one operator, all well. `machine`: what operators run.

    With a `rollout` users dislike every fifth version, and say so once an engine serves it. With a `slowness` engines
    take so many times as long to start, while versions come and go.
    """

    def __init__(
        self,
        seed: int,
        *,
        engines: int,
        gateways: int,
        machine: type[Machine] = Machine,
        rollout: Rollout | None = None,
        slowness: float = 0.0,
    ) -> None:
        self.rollout, self._slowness = rollout, slowness
        self.disliked = {version(number) for number in range(3, 1000, 5)} if rollout is not None else set()
        self._judged: dict[int, dict[str, dict[str, int]]] = {}
        self._ever_pinned: set[str] = set()
        self.machine = machine
        self.time = Timeline(seed)
        self.network = Network(self.time)
        self.server = LeaseServer(self.time, self.network)
        self.server.wrote = self._check_write
        self.engines: dict[str, Engine] = {}
        self.gateways: dict[str, Gateway] = {}
        self.operators: list[Operator] = []
        self.published = 0
        self.announced = 0
        self.pinned: str | None = None
        self.request: str | None = None
        self.bad: set[str] = set()
        self.landed: set[tuple[int, str]] = set()
        self.deleted: set[int] = set()
        self.skews = {0.0}
        self.faults_until = 0.0
        self.crashes_until = 0.0
        """Until then every operator dies the moment it touches an engine."""
        self._names = itertools.count()
        self._served: dict[int, str] = {}
        self._hold_epochs: set[int] = set()
        for _ in range(engines):
            self.add_engine()
        for _ in range(gateways):
            self.add_gateway(0.0)
        self.start_operator(0.0)

    # ------------------------------------------------------------ parts

    def add_engine(self) -> None:
        lag, started = self.time.between(0.0, KUBELET_LAG_SEC), self.time.now
        uid = f"engine-{next(self._names)}"

        def target() -> str | None:
            """A pod mounts what is there when it starts; later changes come a kubelet's period late."""
            return self.server.mounted(min(lag, self.time.now - started))

        self.engines[uid] = Engine(
            uid,
            self.time,
            target=target,
            loadable=self._loadable,
            bad=self.bad,
            landed=self.landed,
            slowness=self._slowness,
        )

    def add_gateway(self, skew: float) -> None:
        uid = f"gateway-{next(self._names)}"
        self.gateways[uid] = Gateway(uid, self.time, self.server, self.network, skew=skew)

    def start_operator(self, skew: float) -> Operator:
        self.skews.add(skew)
        operator = Operator(f"operator-{next(self._names)}", self, skew)
        self.operators.append(operator)
        return operator

    def crash(self, operator: Operator, back_in: float = 3.0) -> None:
        """kill -9; another one leads `back_in` seconds later if none does."""
        operator.alive = False
        self.time.at(back_in, lambda: None if self.leaders() else self.start_operator(operator.skew) and None)

    def leaders(self) -> list[Operator]:
        return [operator for operator in self.operators if operator.alive]

    def seen(self) -> m.World:
        self._ever_pinned |= {self.pinned} if self.pinned else set()
        return m.World(
            engines=tuple(m.EnginePod(one.uid, one.uid, one.ip, one.up) for one in self.engines.values()),
            gateways=tuple(m.GatewayPod(one.uid, one.uid, one.uid, one.alive) for one in self.gateways.values()),
            published=self._published(),
            pinned=self.pinned,
            pause_timeout_sec=PAUSE_TIMEOUT_SEC,
            target_missing=not self.server.target,
            lease_version=str(self.server.revision) if self.server.exists else "",
            sync_request=self.request,
            rollout=self.rollout,
        )

    def measured(self) -> m.Measured:
        """What users said of the canary so far: fifty turns more at each look of every version that an engine has."""
        lease = self.server.state
        if lease.canary is None:
            return m.Measured()
        told = self._judged.setdefault(lease.canary.epoch, {})
        for name in {one.sglang.version for one in self.engines.values() if one.sglang is not None}:
            score = "-1" if name in self.disliked else "1"
            counts = told.setdefault(name, {})
            counts[score] = counts.get(score, 0) + 50
        copied = {name: dict(counts) for name, counts in told.items()}
        return m.Measured(RolloutScores(epoch=lease.canary.epoch, scores=copied))

    def _published(self) -> Published:
        if not self.announced:
            return Published()
        parsed = WeightVersion.parse(version(self.announced))
        return Published(version=parsed, digest=parsed.digest8 * 8, trainer_epoch=1)

    # ------------------------------------------------------------ trainer

    def publish(self, announce_in: float = 0.0) -> None:
        """Write the next version, announce it, and delete what the Lease releases."""
        self.published += 1
        written = self.published
        if not self.server.down() and self.server.exists and self.server.content is not None:
            self.deleted |= set(self.server.content.releasable)
        self.time.at(announce_in, lambda: self._announce(written))

    def _announce(self, written: int) -> None:
        self.announced = max(self.announced, written)
        for operator in self.leaders():
            operator.tell(self.seen())

    def _loadable(self, wanted: str) -> bool:
        assert self.server.tampered or number(wanted) not in self.deleted, f"{wanted} is needed, but was released"
        return number(wanted) not in self.deleted

    # ------------------------------------------------------------ at every moment

    def _check_write(self, state: WeightSyncState) -> None:
        before = self.server.state
        assert self.server.tampered or state.epoch >= before.epoch, "an epoch fell"
        if state.taken_by is not None:
            assert before.taken_by is None, "a hold is renewed"
            assert state.epoch not in self._hold_epochs or self.server.tampered, "an epoch is used for a second hold"
            assert state.hold is None or state.hold.duration_sec <= PAUSE_TIMEOUT_SEC
            assert state.target_version not in before.bad_versions, "a bad version is tried again"
            disliked = state.target_version in self.disliked - self._ever_pinned
            no_better = before.serving_version in self.disliked | self.bad
            assert self.server.tampered or no_better or not disliked, "a disliked version is promoted"
            self._hold_epochs.add(state.epoch)
        elif state.serving_version is not None and not self.server.tampered:
            named = self._served.setdefault(state.epoch, state.serving_version)
            assert named == state.serving_version, f"epoch {state.epoch} serves {named} and {state.serving_version}"
            self._check_served(state, before)

    def _check_served(self, state: WeightSyncState, before: WeightSyncState) -> None:
        """What is newly called served must be loaded somewhere, if any engine could be asked for a while; or an engine
        got it in the hold that this ends, and was lost since."""
        if state.serving_version == before.serving_version:
            return
        if before.taken_by is not None and (before.epoch, state.serving_version) in self.landed:
            return
        loaded = {one.sglang.version for one in self.engines.values() if one.sglang is not None}
        assert not loaded or state.serving_version in loaded or self._stale(), "no engine has what is called served"

    def _stale(self) -> bool:
        """Engines that came up only now, or that the other of two leaders changed: nobody can know better yet."""
        changed = [moment for one in self.engines.values() for moment, _, _ in one.changes[-1:]]
        since = [one.since for one in self.engines.values() if one.up] + (changed if len(self.leaders()) > 1 else [])
        return any(self.time.now - moment < m.FRESH_SEC + 1 for moment in since)

    def check_paused(self) -> None:
        """SGLang stands still only within an exchange, its grace, and the moment until the agent's watch sees it."""
        limit = PAUSE_TIMEOUT_SEC + 30.0 + 30.0
        for engine in self.engines.values():
            since = engine.sglang.paused_since if engine.sglang is not None else None
            assert since is None or self.time.now - since <= limit, f"{engine.uid} is paused since {since}"

    # ------------------------------------------------------------ in the end

    def settle(self) -> None:
        """No more faults: a good version reaches everything, a bad one nothing, and who comes late catches up."""
        self.time.run(max(self.time.now, self.faults_until) + 30.0)
        self.pinned = None
        self.bad.discard(version(self.published + 1))
        self.disliked.discard(version(self.published + 1))
        while self.rollout is not None and len(self.engines) <= self.rollout.canary_replicas:
            self.add_engine()
        self.publish()
        good = version(self.published)
        self._run_until_settled(good)
        epoch = self.server.state.epoch
        if self.engines and self.time.random.random() < 0.5:
            next(iter(self.engines.values())).restart()
            self.add_engine()
            self._run_until_settled(good)
            assert self.server.state.epoch == epoch, "an engine that merely differs is no reason for a hold"
        if self.engines and self.time.random.random() < 0.3:
            bad = version(self.published + 1)
            self.bad.add(bad)
            self.publish()
            self.time.run(self.time.now + 60.0)
            self._run_until_given_up(bad)
            self._run_until_settled(good)
        if self.time.random.random() < 0.2:
            self._check_quiet()
        self.check_share()

    def _run_until_given_up(self, bad: str) -> None:
        """Engines that started only now may be long in preparing it: its last try must not fall into the last look."""
        end = self.time.now + QUIET_LIMIT_SEC
        while self.time.now < end and bad not in self.server.state.bad_versions:
            self.time.run(self.time.now + 10.0)

    def _run_until_settled(self, wanted: str) -> None:
        end = self.time.now + QUIET_LIMIT_SEC
        while self.time.now < end and self.unsettled(wanted):
            self.time.run(self.time.now + 10.0)
            self.check_paused()
        self.time.run(self.time.now + 12.0)
        assert self.unsettled(wanted) == []

    def unsettled(self, wanted: str) -> list[str]:
        """What keeps the system from serving `wanted` everywhere."""
        lease = self.server.state
        found = [f"{one.uid} serves {one.known}" for one in self.engines.values() if one.known != wanted]
        found += [
            f"{one.uid} really has {one.sglang.version}"
            for one in self.engines.values()
            if one.sglang is not None and one.sglang.version != wanted
        ]
        found += [f"{one.uid} is paused" for one in self.engines.values() if one.sglang and one.sglang.paused_since]
        found += [f"{one.uid} refuses" for one in self.gateways.values() if one.pause.is_on(self.time.now)]
        found += [
            f"{one.uid} hears {one.pause.serving_version}"
            for one in self.gateways.values()
            if one.alive and one.pause.serving_version != wanted
        ]
        found += [f"{one.uid} hears of {one.pause.canary}" for one in self.gateways.values() if one.pause.canary]
        if self.server.content is None or lease.hold is not None or lease.serving_version != wanted:
            found.append(f"the Lease says {self.server.content}")
        if not self.server.target or self.server.target[-1][1] != wanted:
            found.append("the target file is old")
        return found

    def _check_quiet(self) -> None:
        """Once the last recent target is forgotten, nothing is written any more."""
        self.time.run(self.time.now + m.KEEP_RECENT_SEC)
        before = self.server.revision
        self.time.run(self.time.now + 30.0)
        assert self.server.revision == before, "the operator keeps writing though nothing happens"
        self.check_share()

    def check_share(self) -> None:
        """Holds ≤ a tenth of any ten minutes; not asked for when somebody rewrote the Lease that keeps the account."""
        if self.server.tampered:
            return
        spans = self.server.held_spans()
        window = m.HOLD_SHARE_WINDOW_SEC - (max(self.skews) - min(self.skews))
        for _, end in spans:
            held = sum(max(0.0, min(to, end) - max(begin, end - window)) for begin, to in spans)
            assert held <= holds.limit_sec(PAUSE_TIMEOUT_SEC) + 1e-6, f"{held:.1f} s held before {end:.0f}"
