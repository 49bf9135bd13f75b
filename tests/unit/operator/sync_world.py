"""A discrete-event world around the weight-sync machine: API server, agents, gateways, trainer, crashing operators.

Everything that could go wrong between them does, on a schedule: lost answers, conflicts, an API server that is down,
pods that die, agents that fail or hang, operators that are killed in any state. Agents and gateways follow the
contracts of their own processes; what is under test is the machine.
"""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from openclaw_core.leases import Published, WeightSyncState
from openclaw_core.versions import BASE, WeightVersion
from openclaw_core.wire import AgentState, Paused, Synced
from openclaw_operator.weightsync import model as m
from openclaw_operator.weightsync.machine import Machine

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
PAUSE_TIMEOUT = 20
KUBELET_DELAY = 60.0


def version(number: int) -> str:
    return str(WeightVersion(number=number, digest8=f"{number:08x}")) if number else str(BASE)


@dataclass
class Agent:
    """The sync agent and its engine, by the contract of design section 5."""

    uid: str
    ip: str
    version: str | None = None
    loaded_at: float = float("inf")
    highest: int = 0
    busy: bool = False
    paused: bool = False
    prepared: set[str] = field(default_factory=set)
    alive: bool = True
    broken: bool = False
    """Fails every update."""
    hangs: bool = False
    """Never answers; still continues SGLang at the deadline."""
    unready: bool = False
    """Kubernetes calls it not ready, though it serves."""

    def state(self) -> AgentState:
        loaded = self.version is not None
        return AgentState(
            version=self.version,
            target=None,
            ready=loaded,
            paused=self.paused,
            highest_epoch=self.highest,
            phase="syncing" if self.busy else "serving" if loaded else "starting",
        )


@dataclass
class Gateway:
    """Counts a hold once per epoch from first sight; a release or a newer epoch ends the older one."""

    uid: str
    epoch: int = 0
    paused_until: float = float("-inf")
    refusals: dict[int, tuple[float, float]] = field(default_factory=dict)
    """By epoch: (first sight, end of refusing)."""

    def hold(self, epoch: int, seconds: float, now: float) -> None:
        if epoch > self.epoch:
            self.release(self.epoch, now)
            self.epoch, self.paused_until = epoch, now + seconds
            self.refusals[epoch] = (now, now + seconds)

    def release(self, epoch: int, now: float) -> None:
        if epoch >= self.epoch:
            self.epoch = epoch
            if self.epoch in self.refusals and now < self.paused_until:
                self.refusals[self.epoch] = (self.refusals[self.epoch][0], now)
            self.paused_until = min(self.paused_until, now)


class World:
    """One training. `run(until)` advances; `operator` is the machine that leads now."""

    def __init__(self, seed: int, engines: int, gateways: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.lease, self.revision = WeightSyncState(), 1
        self.history: list[tuple[float, WeightSyncState]] = [(0.0, self.lease)]
        self.published = Published()
        self.target: list[tuple[float, str]] = []
        self.agents: dict[str, Agent] = {}
        self.gateways = [Gateway(f"gw{index}") for index in range(gateways)]
        self.api_down_until = 0.0
        self.losing_until = 0.0
        self.bad_numbers: set[int] = set()
        self.announced: list[m.Announce] = []
        self.operator: Machine | None = None
        self._incarnation = 0
        self._pods = itertools.count()
        for _ in range(engines):
            self.start_engine()
        self.start_operator()

    # ------------------------------------------------------------ time

    def at(self, delay: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now + delay, next(self._order), action))

    def run(self, until: float) -> None:
        while self._heap and self._heap[0][0] <= until:
            self.now, _, action = heapq.heappop(self._heap)
            action()
        self.now = until

    def wall(self) -> datetime:
        return EPOCH + timedelta(seconds=self.now)

    def delay(self, least: float = 0.001, most: float = 0.02) -> float:
        return self.random.uniform(least, most)

    # ------------------------------------------------------------ operators

    def start_operator(self) -> None:
        self._incarnation += 1
        self.operator = self.make(f"op-{self._incarnation}")
        self.tell(self._incarnation, self.seen())
        self._resync(self._incarnation)

    def make(self, name: str) -> Machine:
        """The machine under test."""
        return Machine(name, self.now)

    def kill_operator(self, back_in: float) -> None:
        """Its open calls go on in the network; nobody hears their answers."""
        self._incarnation += 1
        self.operator = None
        self.at(back_in, lambda: self.start_operator() if self.operator is None else None)

    def _resync(self, incarnation: int) -> None:
        if incarnation == self._incarnation:
            self.tell(incarnation, self.seen())
            self.at(4.0, lambda: self._resync(incarnation))

    def seen(self) -> m.World:
        return m.World(
            engines=tuple(
                m.EnginePod(agent.uid, agent.uid, agent.ip, agent.version is not None and not agent.unready)
                for agent in self.agents.values()
                if agent.alive
            ),
            gateways=tuple(m.GatewayPod(gateway.uid, gateway.uid, gateway.uid, True) for gateway in self.gateways),
            published=self.published,
            pinned=None,
            pause_timeout_sec=PAUSE_TIMEOUT,
            target_missing=not self.target,
            lease_version=str(self.revision),
        )

    def tell(self, incarnation: int, told: m.Told) -> None:
        operator = self.operator
        if operator is None or incarnation != self._incarnation:
            return
        for action in operator.handle(told, self.now, self.wall()):
            self._perform(incarnation, action)
        wake = operator.next_wake()
        self.at(wake - self.now, lambda: self._tick(incarnation, wake))

    def _tick(self, incarnation: int, wake: float) -> None:
        operator = self.operator
        if operator is not None and incarnation == self._incarnation and operator.next_wake() <= wake:
            self.tell(incarnation, m.Tick())

    # ------------------------------------------------------------ actions

    def _perform(self, incarnation: int, action: m.Action) -> None:
        match action:
            case m.ReadLease():
                self.at(self.delay(), lambda: self._read(incarnation))
            case m.WriteLease():
                self.at(self.delay(), lambda: self._write(incarnation, action))
            case m.WriteTarget(wanted):
                self.at(self.delay(), lambda: self._write_target(incarnation, wanted))
            case m.PollAgent(uid):
                self.at(self.delay(), lambda: self._poll(incarnation, uid))
            case m.PrepareEngine(uid, wanted):
                self.at(self.delay(0.01, 2.0), lambda: self._prepare(incarnation, uid, wanted))
            case m.SyncEngine():
                self.at(self.delay(), lambda: self._sync(incarnation, action))
            case m.TellGateways(paused):
                for gateway in self.gateways:
                    self.at(self.delay(), lambda gateway=gateway: self._post(incarnation, gateway, paused))
            case m.Announce():
                self.announced.append(action)

    def _answer(self, incarnation: int, told: m.Told) -> None:
        self.at(self.delay(), lambda: self.tell(incarnation, told))

    def _api_down(self) -> bool:
        return self.now < self.api_down_until

    def _lost(self) -> bool:
        return self.now < self.losing_until and self.random.random() < 0.5

    def _read(self, incarnation: int) -> None:
        told = m.LeaseFailed("down") if self._api_down() else m.LeaseSeen(self.lease, str(self.revision))
        self._answer(incarnation, told)

    def _write(self, incarnation: int, action: m.WriteLease) -> None:
        if self._lost() and self.random.random() < 0.5:
            # The client gives up, but the request lands later.
            self._answer(incarnation, m.LeaseFailed("timeout"))
            self.at(self.random.uniform(0.0, 5.0), lambda: self._write(-1, action))
            return
        if self._api_down() or action.resource_version != str(self.revision):
            self._answer(incarnation, m.LeaseFailed("conflict"))
            return
        self._check_write(action.state)
        self.lease, self.revision = action.state, self.revision + 1
        self.history.append((self.now, self.lease))
        for gateway in self.gateways:
            self.at(self.delay(0.001, 0.05), lambda gateway=gateway, state=self.lease: self._watch(gateway, state))
        told = m.LeaseFailed("lost") if self._lost() else m.LeaseSeen(self.lease, str(self.revision))
        self._answer(incarnation, told)

    def _check_write(self, state: WeightSyncState) -> None:
        """Epochs never fall and are never used for a second hold; a hold is never renewed."""
        assert state.epoch >= self.lease.epoch
        if state.serving_version not in (None, self.lease.serving_version):
            known = [agent for agent in self.agents.values() if self.now - agent.loaded_at > m.FRESH_SEC + 1]
            loaded = {agent.version for agent in self.agents.values()}
            assert not known or state.serving_version in loaded, "no engine serves it"
        if state.hold is not None:
            used = {held.hold.epoch for _, held in self.history if held.hold is not None}
            assert state.hold.epoch not in used
            assert self.lease.hold is None, "a hold is renewed"

    def _watch(self, gateway: Gateway, state: WeightSyncState) -> None:
        if self._lost():
            return
        if state.hold is not None:
            gateway.hold(state.epoch, state.hold.duration_sec, self.now)
        else:
            gateway.release(state.epoch, self.now)

    def _post(self, incarnation: int, gateway: Gateway, paused: Paused) -> None:
        if self._lost():
            return
        if paused.lease_sec > 0:
            gateway.hold(paused.epoch, paused.lease_sec, self.now)
        else:
            gateway.release(paused.epoch, self.now)
        self._answer(incarnation, m.GatewayAcked(gateway.uid, paused.epoch))

    def _write_target(self, incarnation: int, wanted: str) -> None:
        if self._api_down():
            self._answer(incarnation, m.TargetWritten(None))
            return
        self.target.append((self.now, wanted))
        self._answer(incarnation, m.TargetWritten(wanted))

    # ------------------------------------------------------------ engines

    def start_engine(self) -> None:
        """A pod that comes up at the target its kubelet mounted, which may be a minute old."""
        index = next(self._pods)
        agent = Agent(f"pod{index}", f"10.0.0.{index}")
        self.agents[agent.uid] = agent
        lag = self.random.uniform(0.0, KUBELET_DELAY)
        started = self.now

        def load() -> None:
            known = [wanted for moment, wanted in self.target if moment <= max(started, self.now - lag)]
            wanted = known[-1] if known else version(0)
            self.check_loadable(wanted)
            agent.version, agent.loaded_at = wanted, self.now

        self.at(self.random.uniform(1.0, 15.0), load)

    def kill_engine(self, index: int) -> None:
        living = [agent for agent in self.agents.values() if agent.alive]
        if living:
            victim = living[index % len(living)]
            victim.alive = False
            del self.agents[victim.uid]
            self.start_engine()

    def check_loadable(self, wanted: str) -> None:
        """The trainer deletes what the Lease releases at once: an engine must never be sent there."""
        assert WeightVersion.parse(wanted).number not in self.lease.releasable, f"{wanted} was released"

    def _poll(self, incarnation: int, uid: str) -> None:
        agent = self.agents.get(uid)
        silent = agent is None or agent.hangs or self._lost()
        self._answer(incarnation, m.AgentSeen(uid, None if silent or agent is None else agent.state()))

    def _prepare(self, incarnation: int, uid: str, wanted: str) -> None:
        agent = self.agents.get(uid)
        if agent is None or agent.hangs or self._lost():
            self._answer(incarnation, m.PrepareEnded(uid, wanted, "no answer"))
            return
        self.check_loadable(wanted)
        agent.prepared.add(wanted)
        self._answer(incarnation, m.PrepareEnded(uid, wanted, None))

    def _sync(self, incarnation: int, action: m.SyncEngine) -> None:
        agent = self.agents.get(action.uid)

        def ended(answer: Synced | None, error: str | None) -> None:
            self._answer(incarnation, m.SyncEnded(action.uid, action.epoch, action.version, answer, error))

        if agent is None:
            ended(None, "gone")
        elif action.epoch < agent.highest or agent.busy:
            ended(None, "409")
        else:
            self._update(agent, action, ended)

    def _update(self, agent: Agent, action: m.SyncEngine, ended: Callable[[Synced | None, str | None], None]) -> None:
        self.check_loadable(action.version)
        agent.highest, agent.busy, agent.paused = action.epoch, True, True
        number = WeightVersion.parse(action.version).number
        fails = agent.broken or number in self.bad_numbers
        seconds = min(self.random.uniform(0.05, 1.0), action.deadline_sec)
        if agent.hangs:
            seconds = action.deadline_sec

        def finish() -> None:
            agent.busy = agent.paused = False
            if not fails and not agent.hangs:
                assert action.epoch >= agent.highest
                agent.version = action.version
            answer = Synced(
                epoch=action.epoch,
                version=agent.version or version(0),
                ok=agent.version == action.version,
                pause_sec=seconds,
            )
            if agent.hangs or self._lost():
                self.at(3.0, lambda: ended(None, "timeout"))
            else:
                ended(answer, None)

        self.at(seconds, finish)

    # ------------------------------------------------------------ trainer

    def publish(self, number: int) -> None:
        parsed = WeightVersion.parse(version(number))
        self.published = Published(version=parsed, digest=parsed.digest8 * 8, trainer_epoch=1)
        self.tell(self._incarnation, self.seen())
