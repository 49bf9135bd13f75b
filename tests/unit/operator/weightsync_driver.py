"""A weight-sync machine, its clock, and what is told to it, for tests of single decisions."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from openclaw_core.config.policy_serving import Rollout
from openclaw_core.leases import Published, WeightSyncState
from openclaw_core.versions import WeightVersion
from openclaw_core.wire import AgentState, RolloutScores, Synced
from openclaw_operator.weightsync import model as m
from openclaw_operator.weightsync.machine import Machine
from openclaw_operator.weightsync.view import view

WALL = datetime(2026, 1, 1, tzinfo=UTC)
A = TypeVar("A", bound=m.Action)


def version(number: int) -> WeightVersion:
    return WeightVersion(number=number, digest8="abcdef01")


OLD, NEW, NEWER = str(version(4)), str(version(5)), str(version(6))
LIMITS = Rollout(canary_replicas=1, min_turns=50, max_duration_sec=600, max_score_drop=0.2, max_drift=0.05)
GOOD, BAD = {"1": 300}, {"-1": 300}


class Driver:
    """A machine and its clock."""

    def __init__(self, engines: int = 2, *, serving: str | None = OLD, **lease: object) -> None:
        self.now = 1000.0
        self.machine = Machine("me", 0.0)
        self.engines = [m.EnginePod(f"e{index}", f"e{index}", f"10.0.0.{index}", True) for index in range(engines)]
        known = WeightSyncState(serving_version=serving, target_version=serving, epoch=7, releasable=(1, 2))
        self.state = known.model_copy(update=lease)
        self.writes = 0
        self.published = version(4)
        self.pinned: str | None = None
        self.request: str | None = None
        self.pause_timeout = 30
        self.pace = 1

    def tell(self, told: m.Told) -> list[m.Action]:
        return self.machine.handle(told, self.now, WALL + timedelta(seconds=self.now))

    def later(self, seconds: float) -> None:
        """What agents were asked before has had no answer; they are asked again."""
        self.now += seconds
        for pod in self.engines:
            self.tell(m.AgentSeen(pod.uid, None))

    def world(self) -> list[m.Action]:
        gateways = (m.GatewayPod("g0", "g0", "10.0.1.0", True),)
        published = Published(version=self.published, digest="abcdef01" * 8)
        known = m.World(tuple(self.engines), gateways, published, self.pinned, self.pause_timeout)
        return self.tell(replace(known, sync_request=self.request, pace=self.pace))

    def lease(self, state: WeightSyncState | None = None) -> list[m.Action]:
        self.state = state or self.state
        self.writes += 1
        return self.tell(m.LeaseSeen(self.state, str(self.writes)))

    def agent(self, uid: str, loaded: str | None = OLD, *, epoch: int = 7) -> list[m.Action]:
        phase = "serving" if loaded else "starting"
        state = AgentState(
            version=loaded, target=None, ready=loaded is not None, paused=False, highest_epoch=epoch, phase=phase
        )
        return self.tell(m.AgentSeen(uid, state))

    def settle(self) -> None:
        """Everything known, all engines at the served version."""
        self.world()
        self.lease()
        self.tell(m.TargetWritten(self.state.serving_version))
        for pod in self.engines:
            self.agent(pod.uid)

    def publish(self, number: int) -> list[m.Action]:
        self.published = version(number)
        return self.world()

    def to_hold(self) -> m.WriteLease:
        """From a settled state to the write of the hold for NEW."""
        self.publish(5)
        actions: list[m.Action] = []
        for pod in self.engines:
            actions = self.tell(m.PrepareEnded(pod.uid, NEW, None))
        assert of(actions, m.WriteTarget) == [m.WriteTarget(NEW)]
        return only(self.tell(m.TargetWritten(NEW)), m.WriteLease)

    def to_updating(self) -> list[m.SyncEngine]:
        hold = self.to_hold()
        told = only(self.lease(hold.state), m.TellGateways)
        assert (told.paused.epoch, told.paused.lease_sec) == (8, 30.0)
        return of(self.tell(m.GatewayAcked("g0", 8)), m.SyncEngine)

    def synced(self, uid: str, *, ok: bool = True) -> list[m.Action]:
        answer = Synced(epoch=8, version=NEW if ok else OLD, ok=ok, error=None if ok else "boom", pause_sec=0.05)
        return self.tell(m.SyncEnded(uid, 8, NEW, answer))


def of(actions: list[m.Action], kind: type[A]) -> list[A]:
    return [action for action in actions if isinstance(action, kind)]


def only(actions: list[m.Action], kind: type[A]) -> A:
    (found,) = of(actions, kind)
    return found


class CanaryDriver(Driver):
    """Three engines, one of which is for canaries."""

    def __init__(self, machine: type[Machine] = Machine, **lease: object) -> None:
        super().__init__(3, **lease)
        self.machine = machine("me", self.now)
        self.rollout: Rollout | None = LIMITS

    def tell(self, told: m.Told) -> list[m.Action]:
        return super().tell(replace(told, rollout=self.rollout) if isinstance(told, m.World) else told)

    def begin(self) -> WeightSyncState:
        """Publish NEW and let it become canary."""
        self.settle()
        write = only(self.publish(5), m.WriteLease)
        self.lease(write.state)
        return write.state

    def load(self, uid: str, loaded: str = NEW, *, ok: bool = True) -> list[m.Action]:
        """One engine prepares and loads alone what it was told to."""
        self.now += m.PREPARE_RETRY_SEC
        asked = [action for action in self.tell(m.Tick()) if isinstance(action, m.PrepareEngine | m.SyncEngine)]
        if asked:
            assert asked == [m.PrepareEngine(uid, loaded)]
        sync = only(self.tell(m.PrepareEnded(uid, loaded, None)), m.SyncEngine)
        assert (sync.uid, sync.version, sync.epoch) == (uid, loaded, self.state.epoch)
        answer = Synced(epoch=sync.epoch, version=loaded if ok else OLD, ok=ok, error=None if ok else "boom")
        return self.tell(m.SyncEnded(uid, sync.epoch, loaded, answer))

    def serve_canary(self) -> None:
        self.begin()
        self.load("e0")

    def give_up(self) -> list[m.Action]:
        """The canary begins, and its engine fails to load it as often as a version may."""
        self.begin()
        self.load("e0", ok=False)
        self.later(10)
        self.agent("e0", epoch=8)
        return self.load("e0", ok=False)

    def judged(self, canary: dict[str, int], stable: dict[str, int], **measured: object) -> list[m.Action]:
        assert self.state.canary is not None
        scores = RolloutScores(epoch=self.state.canary.epoch, scores={NEW: canary, OLD: stable})
        return self.tell(replace(m.Measured(scores), **measured))


def said(driver: Driver) -> str:
    seen = view(driver.machine).rollout
    assert seen is not None
    return seen.state
