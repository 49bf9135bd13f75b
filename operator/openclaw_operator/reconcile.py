"""One pass over one training: look → plan → apply → report → return. Never waits for the world.

What outlives a pass (the weight sync, the telemetry, the memory of what was applied) is kept per uid, because a name
can be used again by a new training. A pass looks at what the watches told (`index`); only in doubt does it ask. One
that only has new telemetry or a new sync view to report plans nothing.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import aiohttp

from openclaw_core import names
from openclaw_core.kube import Kube, NotFoundError
from openclaw_core.status import TrainingStatus
from openclaw_operator import conditions, facts, holds, kinds, tokens
from openclaw_operator import status as statuses
from openclaw_operator.apply import Applier, Fault, Memory
from openclaw_operator.builders.network import Network
from openclaw_operator.builders.storage import existing_claims
from openclaw_operator.builders.workload import Context
from openclaw_operator.events import Recorder
from openclaw_operator.images import Images
from openclaw_operator.index import Index
from openclaw_operator.live import without_managers
from openclaw_operator.needs import secret_needs
from openclaw_operator.observe import Observation, listed
from openclaw_operator.plan import Plan, live_workload, outdated, plan, scaled_elsewhere, unwanted
from openclaw_operator.report import Reporter
from openclaw_operator.secrets import Resolution, Secrets
from openclaw_operator.telemetry import Sources, Telemetry
from openclaw_operator.training import InvalidSpecError, Key, Training, managed_elsewhere, parse
from openclaw_operator.weightsync.edge import SyncLoop, Tokens
from openclaw_operator.weightsync.model import pace

log = logging.getLogger(__name__)
Object = dict[str, Any]
PLANS_KEPT = 128
"""Trainings whose whole plan is kept, some 70 KiB each; the others have an outline. 0: of the one in work only."""


@dataclass
class State:
    """What is remembered of one training between passes."""

    key: Key
    uid: str
    memory: Memory = field(default_factory=Memory)
    training: Training | None = None
    seen: Observation | None = None
    outline: Plan | None = None
    """Of the plan that was applied last, what a report needs: the whole of it is most of what a training takes."""
    faults: list[Fault] = field(default_factory=list)
    resolution: Resolution | None = None
    resolved_needs: tuple[object, ...] = ()
    claim_problems: list[str] = field(default_factory=list)
    tokens: Tokens = field(default_factory=Tokens)
    sources: Sources = field(default_factory=Sources)
    telemetry: Telemetry = field(default_factory=Telemetry)
    sync: SyncLoop | None = None
    sync_task: "asyncio.Task[None] | None" = None

    said: tuple[object, ...] | None = None
    """What `training` was parsed from."""
    last: tuple[Context, frozenset[str], Plan] | None = None
    """What was planned last, and from what, unless forgotten: the plan is a function of it, and half of a pass."""

    def blocked(self) -> bool:
        return bool(self.claim_problems) or bool(self.resolution and self.resolution.problems)

    def parsed(self, body: Object) -> Training:
        """The training of `body`; the one it was before where it says the same."""
        said = _said(body)
        if self.training is None or self.said != said:
            self.training, self.said = parse(body), said
        return self.training

    def planned(self, context: Context, blocked: frozenset[str]) -> Plan:
        if self.last is None or self.last[:2] != (context, blocked):
            self.last = (context, blocked, plan(context, blocked))
        return self.last[2]

    def forget_plan(self) -> None:
        self.last = None
        self.memory.hashed.clear()


class Reconciler:
    """Reconciles any number of trainings; `enqueue` asks for another pass of one."""

    def __init__(
        self,
        kube: Kube,
        session: aiohttp.ClientSession,
        images: Images,
        *,
        identity: str,
        tasks: asyncio.TaskGroup,
        enqueue: Callable[[Key], None],
        groups: bool = False,
        network: Network | None = None,
    ) -> None:
        """`groups`: the cluster has LeaderWorkerSets."""
        self._kube, self._session, self._images = kube, session, images
        self._groups, self._network = groups, network or Network()
        self._kinds = (*kinds.APPLIED, kinds.LEADER_WORKER_SET) if groups else kinds.APPLIED
        self._identity, self._tasks, self._enqueue = identity, tasks, enqueue
        self._recorder = Recorder(kube)
        self._secrets = Secrets(kube)
        self.applier = Applier(kube)
        self.reporter = Reporter(kube, self._recorder)
        self.states: dict[Key, State] = {}
        self.index = Index()
        self._passed: set[Key] = set()
        """Trainings of which nothing changed since their last whole pass."""
        self._applying: set[Key] = set()
        self._recent: dict[Key, State] = {}
        """Trainings whose plan is kept; the one that was planned longest ago comes first."""

    def told(self, key: Key, kind: str, event: str | None, body: Object) -> bool:
        """One event of a watch; True when it is a reason for a pass."""
        if not self.index.told(key, kind, event, body):
            return False
        if event == "DELETED" and key in self._applying:
            # The answer to an apply that came before this deletion may still be on its way, and bring the child back
            # into the index.
            self.index.doubt(key)
        self._passed.discard(key)
        return True

    def invalidate(self, key: Key, *, doubt: bool = True) -> None:
        """The next pass is a whole one; in doubt it lists everything."""
        self._passed.discard(key)
        if doubt:
            self.index.doubt(key)

    async def reconcile(self, key: Key) -> None:
        """One pass. Raises what the API server's failures raise; the queue backs off."""
        state = self.states.get(key)
        if state is None or state.seen is None or key not in self._passed:
            self._passed.add(key)
            self._applying.add(key)
            try:
                state = await self._full_pass(key)
            except BaseException:
                self.invalidate(key)
                raise
            finally:
                self._applying.discard(key)
        if state is None:
            return
        try:
            await self._report(state)
        except NotFoundError:
            # Deleted while we worked: the next pass finds it gone and forgets it.
            self.invalidate(key)
            self._enqueue(key)

    async def _full_pass(self, key: Key) -> State | None:
        seen = self.index.look(key) or await self._listed(key)
        if seen is None or "deletionTimestamp" in seen.body["metadata"] or managed_elsewhere(seen.body):
            self.forget(key)
            return None
        state = self._state(key, seen)
        state.seen = seen
        try:
            training = state.parsed(seen.body)
        except InvalidSpecError as error:
            state.training, state.outline = None, None
            await self._report_invalid(state, str(error))
            return None
        await self.resolve(state, training)
        state.claim_problems = await self._claim_problems(training)
        state.tokens = state.tokens if state.tokens.agent else await tokens.ensure(self._kube, training)
        await self._apply(state, training, seen)
        world = facts.world(training, seen, pace(len(self.states)))
        self._sync(state, training).update(training, world, state.tokens)
        state.sources = facts.sources(seen, state.tokens.gateway)
        return state

    async def _listed(self, key: Key) -> Observation | None:
        news = self.index.news(key)
        found = await listed(self._kube, key, self._kinds, self.index.newest(key))
        return self.index.listed(key, found, news) if found is not None else None

    async def resolve(self, state: State, training: Training) -> bool:
        """Look at the training's Secrets now; True when the verdict changed."""
        needs = secret_needs(training.spec)
        resolution = await self._secrets.resolve(training.namespace, needs)
        changed = resolution != state.resolution
        state.resolution, state.resolved_needs = resolution, needs
        return changed

    def forget(self, key: Key) -> None:
        """The training is gone; the garbage collector removes its children."""
        state = self.states.pop(key, None)
        self._recent.pop(key, None)
        self.invalidate(key, doubt=False)
        if state is not None and state.sync_task is not None:
            state.sync_task.cancel()

    def _state(self, key: Key, seen: Observation) -> State:
        uid = seen.body["metadata"]["uid"]
        known = self.states.get(key)
        if known is None or known.uid != uid:
            self.forget(key)
            self._passed.add(key)
            self.states[key] = State(key, uid)
        return self.states[key]

    async def _apply(self, state: State, training: Training, seen: Observation) -> None:
        resolution = state.resolution or Resolution()
        live = {component: live_workload(seen.children, component) for component in names.WORKLOADS}
        context = Context(
            training,
            self._images,
            needs=secret_needs(training.spec),
            secret_hashes=resolution.hashes,
            scaled_elsewhere=scaled_elsewhere({name: found for name, found in live.items() if found is not None}),
            groups=self._groups,
            network=self._network,
            hold=holds.enforced(training.spec.policy_serving.hold, datetime.now(UTC)),
        )
        blocked = self._blocked(state, training, resolution)
        self._keep_plan_of(state)
        wanted = state.planned(context, blocked)
        gone_first = outdated(wanted, {component: seen.all_pods_of(component) for component in names.WORKLOADS})
        wanted = plan(replace(context, outdated=gone_first), blocked) if gone_first else wanted
        state.outline = wanted.outline()
        state.faults = await self.applier.apply(wanted.children, seen.children, state.memory)
        await self.applier.prune(unwanted(wanted, training, seen.children), training.namespace, seen.children)

    def _keep_plan_of(self, state: State) -> None:
        """Plans are kept of the trainings that had a whole pass most recently: they are likely to have the next one."""
        self._recent.pop(state.key, None)
        self._recent[state.key] = state
        if len(self._recent) > PLANS_KEPT:
            self._recent.pop(next(iter(self._recent))).forget_plan()

    def _blocked(self, state: State, training: Training, resolution: Resolution) -> frozenset[str]:
        blocked = set(resolution.blocked())
        if any("weights" in problem for problem in state.claim_problems):
            blocked |= {names.ENGINE, names.TRAINER, names.JUDGE_MODEL}
        if any("experience" in problem for problem in state.claim_problems):
            blocked.add(names.GATEWAY)
        if facts.wrong_env(training) is not None:
            blocked.add(names.JUDGE)
        return frozenset(blocked)

    async def _claim_problems(self, training: Training) -> list[str]:
        problems = []
        for field_path, claim in existing_claims(training):
            try:
                await self._kube.get(kinds.CLAIM.path(training.namespace, claim), metadata_only=True)
            except NotFoundError:
                problems.append(
                    f"{field_path}: PersistentVolumeClaim {claim!r} does not exist; create it or name another"
                )
        return problems

    def _sync(self, state: State, training: Training) -> SyncLoop:
        if state.sync is not None and state.sync_task is not None and not state.sync.fits(training):
            state.sync_task.cancel()  # a hold it leaves behind is cleared by its successor, as after a crash
            state.sync = None
        if state.sync is None:
            key = state.key
            state.sync = SyncLoop(
                training,
                identity=self._identity,
                kube=self._kube,
                session=self._session,
                recorder=self._recorder,
                changed=lambda: self._enqueue(key),
            )
            state.sync_task = self._tasks.create_task(state.sync.run(), name=f"weight sync {key}")
        return state.sync

    async def _report(self, state: State) -> None:
        training, seen, wanted = state.training, state.seen, state.outline
        if training is None or seen is None or wanted is None:
            return
        if state.sync is not None and training.spec.policy_serving.rollout is not None:
            state.sync.measured(facts.measured(state.telemetry))
        view = state.sync.view if state.sync is not None else None
        found = facts.status_facts(
            training,
            seen,
            wanted,
            now=_now(),
            hold_state=holds.state(training.spec.policy_serving.hold, datetime.now(UTC)),
            resolution=state.resolution or Resolution(),
            claim_problems=state.claim_problems,
            faults=state.faults,
            sync=view,
            telemetry=state.telemetry,
        )
        await self._write(state, seen, statuses.compute(found), statuses.mirrored(view))

    async def _report_invalid(self, state: State, message: str) -> None:
        seen = state.seen
        if seen is None:
            return
        found = conditions.Facts(
            generation=seen.body["metadata"].get("generation", 0),
            now=_now(),
            previous=facts.previous_status(seen.body),
            invalid=facts.invalid_spec(message),
            components={component: conditions.ComponentFacts(desired=0) for component in names.WORKLOADS},
        )
        await self._write(state, seen, statuses.compute(found), None)

    async def _write(self, state: State, seen: Observation, status: TrainingStatus, mirror: str | None) -> None:
        previous = facts.previous_status(seen.body)
        written = await self.reporter.status(state.key, state.uid, seen.body.get("status") or {}, status)
        if written is not None:
            self._wrote(state, written)
            await self.reporter.events(state.key, state.uid, statuses.events(previous, status))
        written = await self.reporter.annotation(state.key, state.uid, seen.body["metadata"], mirror)
        if written is not None:
            self._wrote(state, written)

    def _wrote(self, state: State, written: Object) -> None:
        """Our own write's answer is the latest look, and may hold an edit that no watch has told of yet."""
        self.index.told(state.key, names.KIND, "MODIFIED", written)
        if state.seen is None:
            return
        if _asked(written) != _asked(state.seen.body):
            self.invalidate(state.key, doubt=False)
            self._enqueue(state.key)
        state.seen = replace(state.seen, body=without_managers(written))


def _said(body: Object) -> tuple[object, ...]:
    """All that a Training is made of, next to its identity."""
    metadata = body["metadata"]
    return metadata.get("generation"), metadata.get("labels"), body.get("spec")


def _asked(body: Object) -> tuple[object, ...]:
    """What a user says in a training: a change of it is a reason for a whole pass."""
    metadata = body["metadata"]
    notes = {
        key: value for key, value in (metadata.get("annotations") or {}).items() if key != names.ANNOTATION_WEIGHT_SYNC
    }
    return metadata.get("generation"), metadata.get("labels"), notes, metadata.get("deletionTimestamp")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
