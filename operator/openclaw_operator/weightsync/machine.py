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

from datetime import datetime

from openclaw_core.leases import WeightSyncState
from openclaw_core.status import LastSync
from openclaw_core.versions import BASE
from openclaw_core.wire import Paused
from openclaw_operator.reasons import Reason
from openclaw_operator.weightsync import contents, failures, holds, outcome
from openclaw_operator.weightsync import model as m
from openclaw_operator.weightsync import target as targets
from openclaw_operator.weightsync.canary import CanaryWatch
from openclaw_operator.weightsync.fleet import Fleet
from openclaw_operator.weightsync.lease_copy import LeaseCopy
from openclaw_operator.weightsync.model import Phase
from openclaw_operator.weightsync.retention import Retention


class Machine:
    """One per training. `identity` names this operator process in the Lease."""

    def __init__(self, identity: str, now: float) -> None:
        self.identity = identity
        self.phase = Phase.IDLE
        self._lease = LeaseCopy()
        self.world: m.World | None = None
        self.fleet = Fleet()
        self.retention = Retention(now)
        self.last_sync: LastSync | None = None
        self.last_error = ""
        self.canaries = CanaryWatch()
        self.refused_request = ""
        """Id of a one-shot sync that is no id."""
        self.now = now
        self.wall = datetime.min
        self._out: list[m.Action] = []
        self._target_written: str | None = None
        self._target_busy, self._target_after = False, float("-inf")
        self._preparing_for = ""
        self._first_prepared_at: float | None = None
        self._introduced = False
        """Agents were heard since this process began, as far as they can be."""
        self._awake_since = now
        """When it last was told something after a long silence: what waited for it then may be as old as that."""
        self._doubted: tuple[str, int] | None = None
        """A version every engine seems to have that is not called served yet, and the round of questions about it."""
        self._run: m.HoldRun | None = None
        self._release_after = float("-inf")
        self._heard_epoch = 0
        """Highest epoch a gateway answered with: what is lower means nothing to it."""
        self._uncounted = 0.0
        """Seconds of hold that the Lease does not count yet: between a release's writing and its arrival."""

    # ------------------------------------------------------------ the two entries

    def handle(self, told: m.Told, now: float, wall: datetime) -> list[m.Action]:
        """Take in one thing that happened; return what to do now."""
        if now - self.now > m.FRESH_SEC:
            self._awake_since = now
        self.now, self.wall, self._out = now, wall, []
        self._absorb(told)
        if self.world is not None:
            self._advance(self.world)
        return self._out

    def next_wake(self) -> float:
        """When to call `handle(Tick())` if nothing else happens; monotonic seconds."""
        due = [self.fleet.next_poll(self._serving(), self.now)]
        read_due = self._lease.read_due()
        due += [read_due] if read_due is not None else []
        if self.phase == Phase.PREPARING:
            due.append(self.now + 1.0)
        if self._run is not None:
            due += self._run_deadlines(self._run)
        if self.lease is not None and self.phase == Phase.IDLE:
            waits = failures.wait_sec(self.lease, self.target() or "", self.wall)
            due += [self.now + waits] if waits else []
        later = [self._target_after, *self.fleet.solo_times()]
        later += [self._awake_since + m.FIRST_WORD_SEC] if self._doubted is not None else []
        due += [at for at in later if at > self.now]
        return max(min(due), self.now + 0.005)

    @property
    def lease(self) -> WeightSyncState | None:
        """Content of the Lease; None while it has to be read (again)."""
        return self._lease.content

    @property
    def last_lease(self) -> WeightSyncState | None:
        """Content of the Lease as it was known last."""
        return self._lease.last

    @property
    def holding(self) -> bool:
        """Submissions are paused by this machine, or are about to be."""
        return self._run is not None

    def target(self) -> str | None:
        """Version engines should serve; None before Lease and world are known."""
        if self.last_lease is None or self.world is None:
            return None
        return self._choose(self.world, self.last_lease)

    def wanted_of(self, uid: str) -> str | None:
        """Version one engine should serve while nothing is held."""
        lease, world = self.last_lease, self.world
        if lease is None or world is None:
            return None
        if lease.canary is not None and uid in lease.canary.engines:
            return lease.canary.version
        return lease.serving_version

    # ------------------------------------------------------------ taking in

    def _absorb(self, told: m.Told) -> None:
        match told:
            case m.World():
                self.world = told
                self.fleet.seen(told.engines, self.now, told.pace)
                if told.target_missing and not self._target_busy:
                    self._target_written = None
                if self.phase == Phase.IDLE:
                    self._lease.listed(told.lease_version)
            case m.LeaseSeen(state, version):
                self._lease.seen(state, version)
                self._lease_answered(state)
            case m.LeaseFailed():
                self._lease.failed(self.now)
            case m.LeaseGarbled(error, version):
                self._lease.garbled(version)
                self._out.append(outcome.mended(error))
                self._mend(None)
            case m.TargetWritten(version):
                self._target_busy = False
                self._target_written = version or self._target_written
                self._target_after = self.now + (0.0 if version else 1.0)
            case m.AgentSeen(uid, state):
                self.fleet.answered(uid, state, self.now)
            case m.PrepareEnded():
                self.fleet.prepare_ended(told, self.now)
            case m.SyncEnded():
                self._sync_ended(told)
            case m.GatewayAcked(uid, epoch):
                self._heard_epoch = max(self._heard_epoch, epoch)
                if self._run is not None and self._run.epoch == epoch:
                    self._run.acked.add(uid)
            case m.Measured():
                self.canaries.measured = told
            case m.Tick():
                pass

    def _sync_ended(self, ended: m.SyncEnded) -> None:
        ours = self.fleet.sync_ended(ended)
        run = self._run
        if run is not None and run.epoch == ended.epoch and ended.uid in run.participants:
            run.results[ended.uid] = ended
            if run.first_success_at is None and run.successes():
                run.first_success_at = self.now
        elif ours:
            self._tell_changed()
            if self.fleet.solo_ended(ended, self.now):
                name = self.fleet.name(ended.uid)
                text = f"engine {name} caught up with {ended.version} without a pause of submissions"
                self._out.append(m.Announce("Normal", Reason.ENGINE_CAUGHT_UP, text))

    def _lease_answered(self, state: WeightSyncState) -> None:
        """Our own write came back, or a read tells what became of it."""
        run = self._run
        if run is None:
            return
        ours = state.taken_by == self.identity and state.epoch == run.epoch
        if self.phase == Phase.PAUSING and not run.confirmed:
            if ours:
                self._confirmed(run)
            else:
                self._back_to_idle()
        elif self.phase == Phase.RELEASING:
            if ours and run.release is not None:
                self._write_lease(run.release)
            else:
                ended = run.release.epoch if run.release is not None else run.epoch
                self._released(run, ours=state.taken_by is None and state.epoch == ended)

    # ------------------------------------------------------------ deciding

    def _advance(self, world: m.World) -> None:
        self._out += self.fleet.polls(self._serving(), self.now)
        lease = self.lease
        if lease is None:
            self._out += self._lease.read(self.now)
        elif self.phase == Phase.IDLE:
            self._idle(world, lease)
        elif self.phase == Phase.PREPARING:
            self._preparing(world, lease)
        run = self._run
        if run is not None and self.phase == Phase.PAUSING:
            self._pausing(run)
        elif run is not None and self.phase == Phase.UPDATING:
            self._updating(run)

    def _idle(self, world: m.World, lease: WeightSyncState) -> None:
        if self._lease.busy:
            return
        if lease.taken_by is not None:
            self._clear(lease)
            return
        if self._lease.may_change_yet:
            self._write_lease(contents.fenced(lease))
            return
        self._introduced = self._introduced or self.fleet.introduced(self.now)
        if not self._introduced:
            self._write_target(lease.serving_version or str(BASE))
            return
        if self._mend(lease) or self._take_up_request(world, lease) or self._step_canary(world, lease):
            return
        target = self._choose(world, lease)
        if target != lease.serving_version and self._go_over(world, lease, target):
            return
        self._write_target(lease.serving_version or str(BASE))
        self._update_alone(world, lease)
        if target == lease.serving_version:
            self._doubted = None
            self._refresh_releasable(lease)

    def _go_over(self, world: m.World, lease: WeightSyncState, target: str) -> bool:
        """Towards a version that is not called served yet; True when that is under way.

        What most engines have although the Lease lost what is served needs no hold: the others catch up alone.
        """
        lost = lease.serving_version is None and target == self.fleet.commonest(self.now)
        at_first = lease.serving_version is None and target == str(BASE)
        if not lost and (target in lease.bad_versions or failures.wait_sec(lease, target, self.wall)):
            self._doubted = None
            return False
        if not lost and self._differing(target):
            self._doubted = None
            kept = contents.kept(lease, target)
            if kept != lease:
                self._write_lease(kept)
                return True
            self.phase, self._preparing_for, self._first_prepared_at = Phase.PREPARING, target, None
            self._preparing(world, lease)
            return True
        if at_first or self._engines_confirm(target):
            self._adopt(lease, target)
            return True
        return False

    def _preparing(self, world: m.World, lease: WeightSyncState) -> None:
        target = self._choose(world, lease)
        differing = self._differing(target)
        if target != self._preparing_for or self._lease.busy or lease.taken_by is not None or not differing:
            self._back_to_idle()
            return
        missing = [uid for uid in differing if not self.fleet.prepared(uid, target)]
        for uid in missing:
            self._out += self.fleet.prepare(uid, target, self.now)
        prepared = [uid for uid in differing if uid not in missing]
        if prepared and self._first_prepared_at is None:
            self._first_prepared_at = self.now
        chosen = [uid for uid in prepared if not self.fleet.busy(uid)]
        patient = self._first_prepared_at is None or self.now - self._first_prepared_at < m.PREPARE_PATIENCE_SEC
        if not chosen or (len(chosen) < len(differing) and patient):
            return
        seconds = holds.length(self._counted(lease), world.pause_timeout_sec, self.wall)
        if seconds is not None and self._write_target(target):
            self._start_hold(lease, target, frozenset(chosen), seconds)

    def _pausing(self, run: m.HoldRun) -> None:
        if not run.confirmed:
            return
        if run.gateways <= run.acked or self.now >= run.confirmed_at + m.ACK_WAIT_SEC:
            self._start_updating(run)

    def _updating(self, run: m.HoldRun) -> None:
        gone = [uid for uid in run.participants if uid not in self.fleet.pods and uid not in run.results]
        for uid in gone:
            run.results[uid] = m.SyncEnded(uid, run.epoch, run.version, None, "the pod is gone")
        done = run.participants <= run.results.keys()
        if done or self.now >= min(self._straggler_deadline(run), self._engine_deadline(run)):
            self._release(run)

    # ------------------------------------------------------------ steps of a hold

    def _start_hold(self, lease: WeightSyncState, target: str, participants: frozenset[str], seconds: int) -> None:
        lease, self._uncounted = self._counted(lease), 0.0
        taken = self._taken(lease, target, seconds)
        held = taken.hold is not None
        self._run = m.HoldRun(taken.epoch, target, seconds, self.now, self.wall, participants=participants, held=held)
        self._run.shortened = self.world is not None and seconds < self.world.pause_timeout_sec
        self.phase = Phase.PAUSING
        self.retention.remember((lease.serving_version, target), self.now)
        self._write_lease(taken)
        # Says nothing new; it opens the connections that the hold and its release will need.
        self._tell_serving(lease, lease.epoch)

    def _taken(self, lease: WeightSyncState, target: str, seconds: int) -> WeightSyncState:
        """The Lease under which this process alone changes engines."""
        return contents.begun(lease, holder=self.identity, target=target, seconds=seconds, wall=self.wall)

    def _confirmed(self, run: m.HoldRun) -> None:
        run.confirmed, run.confirmed_at = True, self.now
        if not run.held:
            return
        gateways = self.world.gateways if self.world is not None else ()
        run.gateways = frozenset(pod.uid for pod in gateways if pod.ready)
        paused = Paused(epoch=run.epoch, lease_sec=float(run.duration_sec), version=run.version)
        self._out.append(m.TellGateways(paused))

    def _start_updating(self, run: m.HoldRun) -> None:
        self.phase, run.updating_since = Phase.UPDATING, self.now
        run.participants = frozenset(uid for uid in run.participants if uid in self.fleet.pods)
        gateways = self.world.gateways if self.world is not None else ()
        run.missing = tuple(pod.name for pod in gateways if pod.uid in run.gateways - run.acked)
        deadline = self._engine_deadline(run) - self.now
        if not run.participants or deadline <= 0:
            self._release(run)
            return
        again = self.last_lease is not None and failures.attempts(self.last_lease, run.version) > 0
        for uid in sorted(run.participants):
            self._out.append(self.fleet.sync(uid, run.epoch, run.version, deadline, again=again))

    def _release(self, run: m.HoldRun) -> None:
        lease = self.lease or WeightSyncState(epoch=run.epoch)
        run.counted_sec, run.updated_at = run.paused_sec(self.now), self.now
        kept = self._releasable(lease, {run.version})
        run.release = contents.released(lease, run, living=self.fleet.pods, releasable=kept, wall=self.wall)
        self.phase = Phase.RELEASING
        self.canaries.changed(lease, run.release)
        # The direct word goes out beside the write: it can only open earlier, and an old epoch is ignored.
        self._tell_serving(run.release, run.epoch)
        if self.lease is not None:
            self._write_lease(run.release)

    def _released(self, run: m.HoldRun, *, ours: bool) -> None:
        self._uncounted += run.paused_sec(self.now) - (run.counted_sec if ours else 0.0)
        self.last_sync = outcome.record(run, self.now, ours=ours)
        self.last_error = outcome.first_error(run)
        self._out.append(outcome.announcement(run, self.last_sync.result, self.now))
        self._back_to_idle()

    def _clear(self, lease: WeightSyncState) -> None:
        """A hold or claim no run of ours knows: an earlier process died in it. The higher epoch shuts its syncs out."""
        self._write_lease(contents.cleared(lease, self.wall))
        if lease.hold is not None:
            self._tell_serving(lease, lease.epoch)

    def _counted(self, lease: WeightSyncState) -> WeightSyncState:
        """The Lease with every second of hold counted."""
        if self._uncounted <= 0:
            return lease
        return lease.model_copy(update={"held": holds.added(lease.held, self._uncounted, self.wall)})

    def _mend(self, lease: WeightSyncState | None) -> bool:
        """Write a Lease again that lost what it said; True when that is under way."""
        highest = max(self._heard_epoch, self.fleet.highest_epoch(self.now))
        mended = contents.mended(lease, self._lease.best, highest)
        if mended is not None:
            self._write_lease(mended)
        return mended is not None

    # ------------------------------------------------------------ without a hold

    def _engines_confirm(self, target: str) -> bool:
        """True when all have answered since this target was first thought theirs: what they said before may have been
        changed by an order of ours that is still open, or by another leader."""
        if self._doubted is None or self._doubted[0] != target:
            self._doubted = (target, self.fleet.ask_again())
            self._out += self.fleet.polls(self._serving(), self.now)
        if not self.fleet.states(self.now) and self.now < self._awake_since + m.FIRST_WORD_SEC:
            return False  # news of engines may be on its way
        return not self.fleet.unknown(self.now) and self.fleet.confirmed(self._doubted[1], self.now)

    def _take_up_request(self, world: m.World, lease: WeightSyncState) -> bool:
        """A person asks for one sync: what is wanted gets new tries at once. True when that is being written."""
        asked = world.sync_request
        if not asked or asked == lease.sync_request:
            return False
        if not m.SYNC_REQUEST_PATTERN.fullmatch(asked):
            if asked != self.refused_request:
                self.refused_request = asked
                self._out.append(outcome.no_request_id(asked))
            return False
        self.fleet.try_again()
        self._write_lease(contents.asked_for(lease, asked, targets.wanted(world.published, world.pinned)))
        return True

    def _adopt(self, lease: WeightSyncState, target: str) -> None:
        """No engine has to change for this target: say so in one write, under an epoch of its own."""
        self._doubted = None
        self.retention.remember((lease.serving_version, target), self.now)
        self._write_target(target)
        adopted = contents.adopted(lease, target, self._releasable(lease, {target}))
        self._write_lease(adopted)
        self.canaries.changed(lease, adopted)
        self._tell_serving(adopted, adopted.epoch)

    def _step_canary(self, world: m.World, lease: WeightSyncState) -> bool:
        """Begin, promote, roll back or cancel a canary; True when that is being written."""
        step = self.canaries.step(lease, world, self.fleet, self.now, self.wall)
        if step is None:
            return False
        self._write_lease(step.lease)
        self._tell_serving(step.lease, step.lease.epoch)
        self._out += [step.announce] if step.announce is not None else []
        return True

    def _update_alone(self, world: m.World, lease: WeightSyncState) -> None:
        if lease.serving_version is None:
            return
        seconds = world.pause_timeout_sec - m.RELEASE_MARGIN_SEC
        for uid in self.fleet.ready(self.now):
            wanted = self.wanted_of(uid) or lease.serving_version
            # Who becomes canary serves until it changes; who comes back from it is out of the rotation already.
            in_turn = wanted != lease.serving_version
            self._out += self.fleet.solo(uid, lease.epoch, wanted, seconds, self.now, one_by_one=in_turn)

    def _refresh_releasable(self, lease: WeightSyncState) -> None:
        if self._lease.busy or self.now < self._release_after:
            return
        self._release_after = self.now + m.POLL_SOON_SEC
        wanted = self._releasable(lease, set())
        if set(wanted) != set(lease.releasable):
            self._write_lease(lease.model_copy(update={"releasable": wanted}))

    # ------------------------------------------------------------ asking

    def _tell_serving(self, lease: WeightSyncState, epoch: int, *, engines_changed: bool = False) -> None:
        """Say to gateways that nothing is held, and what serves."""
        serving, canary = lease.serving_version, lease.canary
        said = Paused(epoch=epoch, lease_sec=0, serving_version=serving, canary=canary, engines_changed=engines_changed)
        self._out.append(m.TellGateways(said))

    def _tell_changed(self) -> None:
        """Say to gateways that an engine was told to change alone: they know its version only from before."""
        lease = self.last_lease
        if lease is not None and lease.hold is None:
            self._tell_serving(lease, lease.epoch, engines_changed=True)

    def _write_lease(self, state: WeightSyncState) -> None:
        self._out.append(self._lease.write(state))

    def _write_target(self, version: str) -> bool:
        """True when target.json says `version` already; else it is being written."""
        if self._target_written == version:
            return True
        if not self._target_busy and self.now >= self._target_after:
            self._target_busy = True
            self._out.append(m.WriteTarget(version))
        return False

    # ------------------------------------------------------------ looking

    def _choose(self, world: m.World, lease: WeightSyncState) -> str:
        loaded, rollout = self.fleet.commonest(self.now), world.rollout is not None
        return targets.choose(lease, world.published, world.pinned, loaded, rollout=rollout)

    def _differing(self, target: str) -> list[str]:
        return [uid for uid in self.fleet.ready(self.now) if self.fleet.version(uid) != target]

    def _serving(self) -> str | None:
        return self.lease.serving_version if self.lease is not None else None

    def _releasable(self, lease: WeightSyncState, kept: set[str]) -> tuple[int, ...]:
        if self.world is None:
            return ()
        in_use = {lease.serving_version, lease.target_version, self.world.pinned, *kept, *self.fleet.versions()}
        in_use |= {lease.canary.version} if lease.canary is not None else set()
        return self.retention.releasable(self.world.published, in_use, lease.releasable, self.now)

    def _engine_deadline(self, run: m.HoldRun) -> float:
        return run.issued_at + run.duration_sec - m.RELEASE_MARGIN_SEC

    def _straggler_deadline(self, run: m.HoldRun) -> float:
        if run.first_success_at is None:
            return float("inf")
        took = run.first_success_at - run.updating_since
        return run.first_success_at + max(m.STRAGGLER_FLOOR_SEC, took)

    def _run_deadlines(self, run: m.HoldRun) -> list[float]:
        if self.phase == Phase.PAUSING and run.confirmed:
            return [run.confirmed_at + m.ACK_WAIT_SEC]
        if self.phase == Phase.UPDATING:
            return [self._straggler_deadline(run), self._engine_deadline(run)]
        return []

    def _back_to_idle(self) -> None:
        self.phase, self._run = Phase.IDLE, None
