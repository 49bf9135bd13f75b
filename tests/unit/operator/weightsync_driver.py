"""A weight-sync machine, its clock, and what is told to it, for tests of single decisions."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from openclaw_core.leases import Published, WeightSyncState
from openclaw_core.versions import WeightVersion
from openclaw_core.wire import AgentState, Synced
from openclaw_operator.weightsync import model as m
from openclaw_operator.weightsync.machine import Machine

WALL = datetime(2026, 1, 1, tzinfo=UTC)
A = TypeVar("A", bound=m.Action)


def version(number: int) -> WeightVersion:
    return WeightVersion(number=number, digest8="abcdef01")


OLD, NEW, NEWER = str(version(4)), str(version(5)), str(version(6))


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
