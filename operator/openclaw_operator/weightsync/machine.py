"""The weight sync of one training as a machine without I/O or clock: told what happened, it says what to do.

    Idle ──new target, engines differ──▶ Preparing ──all reachable prepared, target.json written──▶ Pausing
      ▲                                      │ target changed                                         │ hold written,
      │                                      ▼                                                        │ gateways acked
      │                                     Idle                                                      │ or 500 ms over
      └──────── Releasing ◀── all engines done, stragglers' grace over, or deadline ◀── Updating ◀────┘

Idle also updates single engines that merely differ (restart, scale-up, missed update), without a hold. A failed hold
returns to Idle with `not-before` set; the second marks the version bad. A hold found at start, whoever wrote it, is
cleared under a higher epoch before any engine is touched. The hold is the Lease: a write that fails leaves its
content unknown, so it is read again before anything else.

`handle` is called for every answer and every passing of `next_wake`; all times are monotonic seconds from outside.
"""

from collections import deque
from datetime import datetime, timedelta

from openclaw_core.leases import Hold, WeightSyncState
from openclaw_core.leases import format_time as format_moment
from openclaw_core.status import LastSync
from openclaw_core.versions import BASE
from openclaw_core.wire import AgentState, Paused
from openclaw_operator.reasons import Reason
from openclaw_operator.weightsync import model as m
from openclaw_operator.weightsync import target as targets
from openclaw_operator.weightsync.model import Phase


class Machine:
    """One per training. `identity` names this operator process in the Lease."""

    def __init__(self, identity: str, now: float) -> None:
        self.identity = identity
        self.phase = Phase.IDLE
        self.lease: WeightSyncState | None = None
        self.last_sync: LastSync | None = None
        self._started_at = now
        self._now, self._wall = now, datetime.min
        self._out: list[m.Action] = []
        self._world: m.World | None = None
        self._resource_version = ""
        self._lease_busy, self._read_after = False, float("-inf")
        self._target_written: str | None = None
        self._target_busy, self._target_after = False, float("-inf")
        self._agents: dict[str, m.Agent] = {}
        self._preparations: dict[str, m.Preparation] = {}
        self._syncing: dict[str, m.SyncEngine] = {}
        self._solos: dict[str, m.Solo] = {}
        self._preparing_for = ""
        self._first_prepared_at: float | None = None
        self._run: m.HoldRun | None = None
        self._holds: deque[tuple[float, float]] = deque()
        self._recent_targets: deque[tuple[float, str]] = deque()
        self._last_error = ""

    # ------------------------------------------------------------ the two entries

    def handle(self, told: m.Told, now: float, wall: datetime) -> list[m.Action]:
        """Take in one thing that happened; return what to do now."""
        self._now, self._wall, self._out = now, wall, []
        self._absorb(told)
        if self._world is not None:
            self._advance()
        return self._out

    def next_wake(self) -> float:
        """When to call `handle(Tick())` if nothing else happens; monotonic seconds."""
        due = [self._now + m.POLL_IDLE_SEC]
        due += [self._poll_due(uid) for uid, agent in self._agents.items() if not agent.asking]
        if self.lease is None and not self._lease_busy:
            due.append(self._read_after)
        if self.phase == Phase.PREPARING:
            due.append(self._now + 1.0)
        if self._run is not None:
            due += self._run_deadlines(self._run)
        if self.lease is not None and self.lease.not_before is not None and self.phase == Phase.IDLE:
            due.append(self._now + max(0.0, (self.lease.not_before - self._wall).total_seconds()))
        due += [solo.not_before for solo in self._solos.values() if solo.not_before > self._now]
        return max(min(due), self._now + 0.005)

    # ------------------------------------------------------------ taking in

    def _absorb(self, told: m.Told) -> None:
        match told:
            case m.World():
                self._absorb_world(told)
                if told.target_missing and not self._target_busy:
                    self._target_written = None
            case m.LeaseSeen(state, version):
                self._lease_busy = False
                self.lease, self._resource_version = state, version
                self._lease_answered(state)
            case m.LeaseFailed():
                self._lease_busy, self.lease = False, None
                self._read_after = self._now + m.RETRY_READ_SEC
            case m.TargetWritten(version):
                self._target_busy = False
                self._target_written = version or self._target_written
                self._target_after = self._now + (0.0 if version else 1.0)
            case m.AgentSeen(uid, state):
                self._absorb_agent(uid, state)
            case m.PrepareEnded(uid, version, error):
                preparation = self._preparations.get(uid)
                if preparation is not None and preparation.version == version:
                    preparation.asking, preparation.error = False, error
            case m.SyncEnded():
                self._absorb_sync(told)
            case m.GatewayAcked(uid, epoch):
                if self._run is not None and self._run.epoch == epoch:
                    self._run.acked.add(uid)
            case m.Tick():
                pass

    def _absorb_world(self, world: m.World) -> None:
        self._world = world
        present = {pod.uid for pod in world.engines}
        for uid in present - self._agents.keys():
            self._agents[uid] = m.Agent()
        for table in (self._agents, self._preparations, self._syncing, self._solos):
            for uid in table.keys() - present:
                del table[uid]

    def _absorb_agent(self, uid: str, state: AgentState | None) -> None:
        agent = self._agents.get(uid)
        if agent is None:
            return
        agent.asking = False
        if state is not None:
            agent.state, agent.answered_at = state, self._now

    def _absorb_sync(self, ended: m.SyncEnded) -> None:
        pending = self._syncing.get(ended.uid)
        if pending is not None and pending.epoch == ended.epoch and pending.version == ended.version:
            del self._syncing[ended.uid]
        agent = self._agents.get(ended.uid)
        if agent is not None:
            agent.asked_at = float("-inf")
            if ended.answer is not None and agent.state is not None:
                seen = {"version": ended.answer.version, "highest_epoch": max(agent.state.highest_epoch, ended.epoch)}
                agent.state = agent.state.model_copy(update=seen)
        run = self._run
        if run is not None and run.epoch == ended.epoch and ended.uid in run.participants:
            run.results[ended.uid] = ended
            if run.first_success_at is None and run.successes():
                run.first_success_at = self._now
        elif pending is not None:
            self._solo_ended(ended)

    def _lease_answered(self, state: WeightSyncState) -> None:
        """Our own write came back, or a read tells what became of it."""
        run = self._run
        if run is None:
            return
        held = state.hold is not None and state.hold.holder == self.identity and state.hold.epoch == run.epoch
        if self.phase == Phase.PAUSING and not run.confirmed:
            if held:
                self._hold_confirmed(run)
            else:
                self._back_to_idle()
        elif self.phase == Phase.RELEASING:
            if held and run.release is not None:
                self._write_lease(run.release)
            else:
                self._released(run, ours=state.hold is None and state.epoch == run.epoch)

    # ------------------------------------------------------------ deciding

    def _advance(self) -> None:
        self._poll_agents()
        if self.lease is None:
            self._read_lease()
            if self.phase in (Phase.IDLE, Phase.PREPARING):
                return
        match self.phase:
            case Phase.IDLE:
                self._idle()
            case Phase.PREPARING:
                self._preparing()
            case Phase.PAUSING:
                self._pausing()
            case Phase.UPDATING:
                self._updating()
            case Phase.RELEASING:
                pass

    def _idle(self) -> None:
        lease = self._known_lease()
        if self._lease_busy:
            return
        if lease.hold is not None:
            self._clear_foreign_hold(lease)
            return
        highest = max((state.highest_epoch for state in self._states().values()), default=0)
        if highest > lease.epoch:
            self._write_lease(lease.model_copy(update={"epoch": highest}))
            return
        target = self._target()
        if target != lease.serving_version and not self._must_wait(lease, target):
            differing = [uid for uid in self._ready() if self._version(uid) != target]
            if differing:
                self._start_preparing(target)
                return
            if not self._unreachable():
                self._adopt(lease, target)
                return
        self._write_target(lease.serving_version or str(BASE))
        self._update_alone(lease)
        self._refresh_releasable(lease, target)

    def _preparing(self) -> None:
        lease, target = self._known_lease(), self._target()
        differing = [uid for uid in self._ready() if self._version(uid) != target]
        if target != self._preparing_for or self._lease_busy or lease.hold is not None or not differing:
            self._back_to_idle()
            return
        missing = [uid for uid in differing if not self._prepared(uid, target)]
        for uid in missing:
            self._prepare(uid, target)
        prepared = [uid for uid in differing if uid not in missing]
        if prepared and self._first_prepared_at is None:
            self._first_prepared_at = self._now
        busy = [uid for uid in prepared if self._is_busy(uid)]
        patient = self._first_prepared_at is None or self._now - self._first_prepared_at < m.PREPARE_PATIENCE_SEC
        chosen = [uid for uid in prepared if uid not in busy]
        if not chosen or ((missing or busy) and patient):
            return
        if self._write_target(target):
            self._start_hold(lease, target, frozenset(chosen))

    def _pausing(self) -> None:
        run = self._known_run()
        if not run.confirmed:
            return
        if run.gateways <= run.acked or self._now >= run.issued_at + m.ACK_WAIT_SEC:
            self._start_updating(run)

    def _updating(self) -> None:
        run = self._known_run()
        gone = [uid for uid in run.participants if uid not in self._agents and uid not in run.results]
        for uid in gone:
            run.results[uid] = m.SyncEnded(uid, run.epoch, run.version, None, "the pod is gone")
        done = run.participants <= run.results.keys()
        if done or self._now >= min(self._straggler_deadline(run), self._engine_deadline(run)):
            self._release(run)

    # ------------------------------------------------------------ steps of a hold

    def _start_preparing(self, target: str) -> None:
        self.phase, self._preparing_for, self._first_prepared_at = Phase.PREPARING, target, None
        self._preparing()

    def _start_hold(self, lease: WeightSyncState, target: str, participants: frozenset[str]) -> None:
        duration = self._known_world().pause_timeout_sec
        epoch = lease.epoch + 1
        hold = Hold(
            holder=self.identity,
            epoch=epoch,
            acquired_at=self._wall,
            duration_sec=duration,
            pause_version=target,
        )
        self._run = m.HoldRun(epoch, target, duration, self._now, self._wall, participants=participants)
        self.phase = Phase.PAUSING
        self._remember_target(target)
        attempt = lease.attempt if lease.target_version == target else 0
        self._write_lease(
            lease.model_copy(update={"hold": hold, "epoch": epoch, "target_version": target, "attempt": attempt})
        )

    def _hold_confirmed(self, run: m.HoldRun) -> None:
        run.confirmed = True
        run.gateways = frozenset(pod.uid for pod in self._known_world().gateways if pod.ready)
        paused = Paused(epoch=run.epoch, lease_sec=float(run.duration_sec), version=run.version)
        self._out.append(m.TellGateways(paused))

    def _start_updating(self, run: m.HoldRun) -> None:
        self.phase, run.updating_since = Phase.UPDATING, self._now
        run.participants = frozenset(uid for uid in run.participants if uid in self._agents)
        deadline = self._engine_deadline(run) - self._now
        for uid in sorted(run.participants):
            if deadline > 0:
                self._sync(uid, run.epoch, run.version, deadline)
        if not run.participants or deadline <= 0:
            self._release(run)

    def _release(self, run: m.HoldRun) -> None:
        lease = self._known_lease_or(run)
        succeeded = bool(run.successes())
        update: dict[str, object] = {"hold": None, "epoch": run.epoch, "target_version": run.version}
        if succeeded:
            kept = self._kept_versions() | {run.version}
            update |= {
                "serving_version": run.version,
                "attempt": 0,
                "not_before": None,
                "releasable": self._releasable(lease, kept),
            }
        else:
            update |= self._after_failure(lease, run.version)
        run.release = lease.model_copy(update=update)
        self.phase = Phase.RELEASING
        serving = run.release.serving_version
        self._out.append(m.TellGateways(Paused(epoch=run.epoch, lease_sec=0.0, serving_version=serving)))
        if self.lease is not None:
            self._write_lease(run.release)

    def _after_failure(self, lease: WeightSyncState, version: str) -> dict[str, object]:
        attempt = (lease.attempt if lease.target_version == version else 0) + 1
        if attempt >= m.HOLDS_UNTIL_BAD:
            bad = (*(old for old in lease.bad_versions if old != version), version)[-16:]
            return {"bad_versions": bad, "attempt": 0, "not_before": None}
        wait = timedelta(seconds=m.FAILED_HOLD_RETRY_SEC * 2 ** (attempt - 1))
        return {"attempt": attempt, "not_before": self._wall + wait}

    def _released(self, run: m.HoldRun, *, ours: bool) -> None:
        seconds = max(0.0, self._now - run.issued_at)
        self._holds.append((self._now, seconds))
        successes = run.successes()
        whole = len(successes) == len(run.participants)
        result = "Abandoned" if not ours else "Failed" if not successes else "Succeeded" if whole else "Partial"
        slowest = max((answer.pause_sec for answer in successes.values()), default=None)
        self.last_sync = LastSync.model_validate(
            {
                "epoch": run.epoch,
                "version": run.version,
                "started_at": format_moment(run.issued_wall),
                "pause_ms": round(seconds * 1000, 1),
                "engine_ms": round(slowest * 1000, 1) if slowest is not None else None,
                "result": result,
            }
        )
        self._announce_sync(run, result, seconds)
        self._back_to_idle()
        self._last_error = "" if successes else _first_error(run)

    def _announce_sync(self, run: m.HoldRun, result: str, seconds: float) -> None:
        engines = f"{len(run.successes())}/{len(run.participants)} engines"
        pause = f"submissions paused {seconds * 1000:.0f} ms (epoch {run.epoch})"
        if run.successes():
            text = f"weights {run.version} served by {engines}; {pause}"
            self._out.append(m.Announce("Normal", Reason.WEIGHT_SYNCED, text))
            return
        text = f"weights {run.version} reached no engine ({result}): {_first_error(run)}; {pause}"
        self._out.append(m.Announce("Warning", Reason.WEIGHT_SYNC_FAILED, text))

    def _clear_foreign_hold(self, lease: WeightSyncState) -> None:
        """A hold that no run of ours knows: an earlier process died in it. The higher epoch shuts its syncs out."""
        hold = lease.hold
        if hold is None:
            return
        self._write_lease(lease.model_copy(update={"hold": None, "epoch": lease.epoch + 1}))
        told = Paused(epoch=hold.epoch, lease_sec=0.0, serving_version=lease.serving_version)
        self._out.append(m.TellGateways(told))

    # ------------------------------------------------------------ without a hold

    def _adopt(self, lease: WeightSyncState, target: str) -> None:
        """No engine has to change for this target: say so in one write."""
        self._remember_target(target)
        kept = self._kept_versions() | {target}
        update = {
            "serving_version": target,
            "target_version": target,
            "attempt": 0,
            "not_before": None,
            "releasable": self._releasable(lease, kept),
        }
        self._write_target(target)
        self._write_lease(lease.model_copy(update=update))

    def _update_alone(self, lease: WeightSyncState) -> None:
        serving = lease.serving_version
        if serving is None:
            return
        for uid in self._ready():
            solo = self._solos.setdefault(uid, m.Solo())
            if self._version(uid) == serving:
                solo.tries, solo.error = 0, None
            elif self._now >= solo.not_before and not self._is_busy(uid):
                if self._prepared(uid, serving):
                    seconds = self._known_world().pause_timeout_sec - m.RELEASE_MARGIN_SEC
                    self._sync(uid, lease.epoch, serving, seconds)
                else:
                    self._prepare(uid, serving)

    def _solo_ended(self, ended: m.SyncEnded) -> None:
        solo = self._solos.setdefault(ended.uid, m.Solo())
        pod = self._pod_name(ended.uid)
        if ended.answer is not None and ended.answer.ok and ended.answer.version == ended.version:
            solo.tries, solo.error = 0, None
            text = f"engine {pod} caught up with {ended.version} without a pause of submissions"
            self._out.append(m.Announce("Normal", Reason.ENGINE_CAUGHT_UP, text))
            return
        solo.error = _error_of(ended)
        solo.not_before = self._now + min(m.SOLO_RETRY_SEC * 2**solo.tries, m.SOLO_RETRY_MAX_SEC)
        solo.tries += 1
        self._preparations.pop(ended.uid, None)

    def _refresh_releasable(self, lease: WeightSyncState, target: str) -> None:
        if self._lease_busy or target != lease.serving_version:
            return
        wanted = self._releasable(lease, self._kept_versions() | {target})
        if set(wanted) - set(lease.releasable):
            self._write_lease(lease.model_copy(update={"releasable": wanted}))

    # ------------------------------------------------------------ asking

    def _poll_agents(self) -> None:
        for uid, agent in self._agents.items():
            if not agent.asking and self._now >= self._poll_due(uid):
                agent.asking, agent.asked_at = True, self._now
                self._out.append(m.PollAgent(uid))

    def _poll_due(self, uid: str) -> float:
        agent = self._agents[uid]
        settled = agent.state is not None and agent.state.ready and not agent.state.paused
        serving = self.lease.serving_version if self.lease else None
        settled = settled and self._version(uid) == serving and self._fresh(agent)
        return agent.asked_at + (m.POLL_IDLE_SEC if settled else m.POLL_SOON_SEC)

    def _read_lease(self) -> None:
        if not self._lease_busy and self._now >= self._read_after:
            self._lease_busy = True
            self._out.append(m.ReadLease())

    def _write_lease(self, state: WeightSyncState) -> None:
        self._lease_busy = True
        self._out.append(m.WriteLease(state, self._resource_version))

    def _write_target(self, version: str) -> bool:
        """True when target.json says `version` already; else it is being written."""
        if self._target_written == version:
            return True
        if not self._target_busy and self._now >= self._target_after:
            self._target_busy = True
            self._out.append(m.WriteTarget(version))
        return False

    def _prepare(self, uid: str, version: str) -> None:
        known = self._preparations.get(uid)
        if known is not None and known.version == version:
            if known.asking or self._now - known.asked_at < m.PREPARE_RETRY_SEC:
                return
        elif known is not None and known.asking:
            return
        self._preparations[uid] = m.Preparation(version, self._now)
        self._out.append(m.PrepareEngine(uid, version))

    def _sync(self, uid: str, epoch: int, version: str, deadline_sec: float) -> None:
        action = m.SyncEngine(uid, epoch, version, deadline_sec)
        self._syncing[uid] = action
        self._out.append(action)

    # ------------------------------------------------------------ looking

    def _target(self) -> str:
        world = self._known_world()
        return targets.choose(self._known_lease(), world.published, world.pinned)

    def _states(self) -> dict[str, AgentState]:
        """States of reachable agents."""
        return {
            uid: agent.state for uid, agent in self._agents.items() if agent.state is not None and self._fresh(agent)
        }

    def _fresh(self, agent: m.Agent) -> bool:
        return self._now - agent.answered_at < m.FRESH_SEC

    def _ready(self) -> list[str]:
        """Reachable engines with a version loaded: those a sync can reach."""
        return sorted(uid for uid, state in self._states().items() if state.ready and state.version is not None)

    def _unreachable(self) -> bool:
        """Some pod is Ready to Kubernetes (so it may serve), but its agent has not told us its version."""
        states = self._states()
        return any(pod.ready and pod.uid not in states for pod in self._known_world().engines)

    def _version(self, uid: str) -> str | None:
        agent = self._agents.get(uid)
        return agent.state.version if agent is not None and agent.state is not None else None

    def _prepared(self, uid: str, version: str) -> bool:
        known = self._preparations.get(uid)
        return known is not None and known.version == version and not known.asking and known.error is None

    def _is_busy(self, uid: str) -> bool:
        agent = self._agents.get(uid)
        state = agent.state if agent is not None else None
        return uid in self._syncing or (state is not None and (state.paused or state.phase in ("syncing", "loading")))

    def _must_wait(self, lease: WeightSyncState, target: str) -> bool:
        waiting = lease.not_before is not None and self._wall < lease.not_before
        return waiting and lease.target_version == target

    def _kept_versions(self) -> set[str]:
        """Versions some engine serves or may still load."""
        world, lease = self._known_world(), self.lease
        while self._recent_targets and self._now - self._recent_targets[0][0] > m.KEEP_RECENT_SEC:
            self._recent_targets.popleft()
        loaded = {version for version in map(self._version, self._agents) if version}
        asked = {action.version for action in self._syncing.values()}
        named = {lease.serving_version, lease.target_version} if lease else set()
        recent = {version for _, version in self._recent_targets}
        return {version for version in (loaded | asked | named | recent | {world.pinned}) if version}

    def _releasable(self, lease: WeightSyncState, kept: set[str]) -> tuple[int, ...]:
        wanted = targets.releasable(self._known_world().published, kept)
        if self._now - self._started_at >= m.KEEP_RECENT_SEC:
            return wanted
        known = set(lease.releasable)  # what was the target before this process started is not remembered
        return tuple(number for number in wanted if number in known)

    def _remember_target(self, target: str) -> None:
        self._recent_targets.append((self._now, target))
        if self.lease is not None and self.lease.serving_version:
            self._recent_targets.append((self._now, self.lease.serving_version))

    def _engine_deadline(self, run: m.HoldRun) -> float:
        return run.issued_at + run.duration_sec - m.RELEASE_MARGIN_SEC

    def _straggler_deadline(self, run: m.HoldRun) -> float:
        if run.first_success_at is None:
            return float("inf")
        took = run.first_success_at - run.updating_since
        return run.first_success_at + max(m.STRAGGLER_FLOOR_SEC, took)

    def _run_deadlines(self, run: m.HoldRun) -> list[float]:
        if self.phase == Phase.PAUSING and run.confirmed:
            return [run.issued_at + m.ACK_WAIT_SEC]
        if self.phase == Phase.UPDATING:
            return [self._straggler_deadline(run), self._engine_deadline(run)]
        return []

    def _back_to_idle(self) -> None:
        self.phase, self._run = Phase.IDLE, None

    def _known_lease(self) -> WeightSyncState:
        if self.lease is None:
            raise RuntimeError("the Lease is not known in this state")
        return self.lease

    def _known_lease_or(self, run: m.HoldRun) -> WeightSyncState:
        """The Lease as last known, or what this run made of it."""
        return self.lease or WeightSyncState(epoch=run.epoch)

    def _known_run(self) -> m.HoldRun:
        if self._run is None:
            raise RuntimeError("no hold is under way in this state")
        return self._run

    def _known_world(self) -> m.World:
        if self._world is None:
            raise RuntimeError("nothing was observed yet")
        return self._world

    def _pod_name(self, uid: str) -> str:
        return next((pod.name for pod in self._known_world().engines if pod.uid == uid), uid)

    # ------------------------------------------------------------ reporting

    def view(self) -> m.SyncView:
        """What status says now."""
        world, lease = self._world, self.lease
        published = world.published.version if world is not None else None
        engines = tuple(
            m.EngineView(pod.name, self._agents[pod.uid].state if pod.uid in self._states() else None)
            for pod in (world.engines if world is not None else ())
        )
        return m.SyncView(
            phase=self.phase,
            lease=lease,
            target=self._target() if lease is not None and world is not None else None,
            published=str(published) if published is not None else None,
            engines=engines,
            last_sync=self.last_sync,
            trouble=self._trouble(),
        )

    def _trouble(self) -> m.Trouble | None:
        """The most telling reason why the fleet is not where it should be; None when it is, or is on its way."""
        world, lease = self._world, self.lease
        if world is None or lease is None:
            return None
        published = world.published.version
        if published is not None and str(published) in lease.bad_versions and world.pinned is None:
            text = f"version {published} failed in {m.HOLDS_UNTIL_BAD} holds and is not served: {self._last_error}"
            return m.Trouble(Reason.VERSION_BAD, text)
        if self._last_error and lease.attempt:
            return m.Trouble(Reason.SYNC_FAILED, f"the last sync reached no engine: {self._last_error}")
        for uid, preparation in self._preparations.items():
            if preparation.error is not None and self._version(uid) != preparation.version:
                text = f"engine {self._pod_name(uid)} cannot prepare {preparation.version}: {preparation.error}"
                return m.Trouble(Reason.PREPARE_FAILED, text)
        for uid, solo in self._solos.items():
            if solo.error is not None:
                text = f"engine {self._pod_name(uid)} does not reach {lease.serving_version}: {solo.error}"
                return m.Trouble(Reason.ENGINES_DIFFER, text)
        return self._share_trouble()

    def _share_trouble(self) -> m.Trouble | None:
        while self._holds and self._now - self._holds[0][0] > m.HOLD_SHARE_WINDOW_SEC:
            self._holds.popleft()
        share = sum(seconds for _, seconds in self._holds) / m.HOLD_SHARE_WINDOW_SEC
        if share <= m.HOLD_SHARE_LIMIT:
            return None
        text = f"submissions were paused {share:.0%} of the last 10 minutes (limit {m.HOLD_SHARE_LIMIT:.0%})"
        return m.Trouble(Reason.HOLDS_TOO_LONG, text)


def _error_of(ended: m.SyncEnded) -> str:
    """Why an engine does not have the version, in one sentence."""
    if ended.error:
        return ended.error
    if ended.answer is None:
        return "no answer"
    return ended.answer.error or f"the engine serves {ended.answer.version}"


def _first_error(run: m.HoldRun) -> str:
    return next((_error_of(ended) for ended in run.results.values()), "no engine answered in time")
