"""The conditions of a training from facts. Pure.

Every condition has a fixed reason per state (`reasons.Reason`); `lastTransitionTime` moves only when `status` moves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any, Literal

from openclaw_core import names
from openclaw_core import status as out
from openclaw_core.config.policy_serving import Hold
from openclaw_core.status import ConditionType
from openclaw_core.wire import AgentState, TrainerState
from openclaw_operator.apply import Fault
from openclaw_operator.holds import HoldState
from openclaw_operator.pods import Cause, cause, is_current, is_ready
from openclaw_operator.reasons import Reason
from openclaw_operator.secrets import Problem
from openclaw_operator.telemetry import Telemetry, fresh_drift
from openclaw_operator.weightsync.model import SyncView

Object = dict[str, Any]
Truth = Literal["True", "False", "Unknown"]
DRIFT_LIMIT = 0.05
"""Masked mean |log π_old − log π_rollout| of fresh samples above which engine and trainer disagree."""


@dataclass(frozen=True)
class Verdict:
    """One condition without its times."""

    type: ConditionType
    status: Truth
    reason: Reason
    message: str = ""


@dataclass(frozen=True)
class ComponentFacts:
    """What was found of one component. `pods` are live ones; `workload` (what makes them) None = not there (yet)."""

    desired: int
    pods: Sequence[Object] = ()
    ending: int = 0
    """Pods that are being deleted and still there."""
    workload: Object | None = None
    revision: str | None = None
    secrets: str | None = None
    blocked: bool = False

    def current(self) -> list[Object]:
        return [pod for pod in self.pods if is_current(pod, self.revision, self.secrets)]


@dataclass(frozen=True)
class Facts:
    """Everything a status is computed from. `invalid` = why the spec cannot be acted on."""

    generation: int
    now: str
    """RFC 3339, for transitions."""
    previous: out.TrainingStatus = field(default_factory=out.TrainingStatus)
    invalid: Verdict | None = None
    suspend: bool = False
    hold: Hold | None = None
    hold_state: HoldState = HoldState.NONE
    judging_wanted: bool = True
    judge_model_wanted: bool = False
    """Judges ask a model served here, not an endpoint of somebody else's."""
    environment_enabled: bool = False
    endpoint: str | None = None
    components: Mapping[str, ComponentFacts] = field(default_factory=dict)
    secret_problems: Sequence[Problem] = ()
    claim_problems: Sequence[str] = ()
    faults: Sequence[Fault] = ()
    sync: SyncView | None = None
    telemetry: Telemetry = field(default_factory=Telemetry)


CALM = frozenset(
    {
        Reason.STARTING,
        Reason.VOLUME_PENDING,
        Reason.ROLLING_OUT,
        Reason.SUSPENDED,
        Reason.SUSPENDING,
        Reason.NONE_WANTED,
        Reason.BLOCKED,
        Reason.AWAITING_ADMISSION,
    }
)
_GATES = (
    ConditionType.CONFIG_VALID,
    ConditionType.SECRETS_RESOLVED,
    ConditionType.SERVING_READY,
    ConditionType.JUDGING_READY,
    ConditionType.ENVIRONMENT_READY,
    ConditionType.TRAINING_READY,
)


def verdicts(facts: Facts) -> list[Verdict]:
    """In the order of ConditionType."""
    serving = _serving_ready(facts)
    judging = _judging(facts)
    environment = _environment(facts)
    training = _training(facts)
    rest = [
        _config(facts),
        _secrets(facts),
        serving,
        judging,
        environment,
        training,
        _paused(facts.sync),
        _degraded(facts.sync),
        _drift(facts),
        _held(facts),
        *_canary(facts.sync),
        _suspended(facts),
    ]
    return [_ready(rest), *rest]


def _ready(rest: Sequence[Verdict]) -> Verdict:
    suspended = next(verdict for verdict in rest if verdict.type == ConditionType.SUSPENDED)
    if suspended.reason != Reason.NOT_SUSPENDED:
        return Verdict(ConditionType.READY, "False", suspended.reason, suspended.message)
    unmet = [verdict for verdict in rest if verdict.type in _GATES and verdict.status != "True"]
    if not unmet:
        return Verdict(ConditionType.READY, "True", Reason.READY, "")
    telling = next((verdict for verdict in unmet if verdict.reason not in CALM), unmet[0])
    return Verdict(ConditionType.READY, "False", telling.reason, telling.message)


def _config(facts: Facts) -> Verdict:
    if facts.invalid is not None:
        return facts.invalid
    if facts.hold_state == HoldState.TOO_LONG:
        text = f"spec.policyServing.hold.until is {_until(facts)}, over 24 h ahead: not enforced; name a sooner time"
        return Verdict(ConditionType.CONFIG_VALID, "False", Reason.HOLD_TOO_LONG, text)
    if facts.faults:
        text = "; ".join(fault.message for fault in facts.faults)
        return Verdict(ConditionType.CONFIG_VALID, "False", Reason.APPLY_FAILED, text)
    return Verdict(ConditionType.CONFIG_VALID, "True", Reason.VALID)


def _secrets(facts: Facts) -> Verdict:
    if facts.invalid is not None:
        return Verdict(ConditionType.SECRETS_RESOLVED, "Unknown", Reason.INVALID_SPEC)
    if not facts.secret_problems:
        return Verdict(ConditionType.SECRETS_RESOLVED, "True", Reason.RESOLVED, "every Secret and key is there")
    text = "; ".join(problem.message for problem in facts.secret_problems)
    return Verdict(ConditionType.SECRETS_RESOLVED, "False", facts.secret_problems[0].reason, text)


def _judging(facts: Facts) -> Verdict:
    parts = (names.JUDGE, names.JUDGE_MODEL) if facts.judge_model_wanted else (names.JUDGE,)
    verdict = _worst(ConditionType.JUDGING_READY, facts, *parts, say="judges are ready")
    asked = [judge for judge in facts.telemetry.judges if judge.counts.get("requests", 0) > 0]
    if verdict.status == "True" and asked and not any(judge.ok for judge in asked):
        words = next((judge.error for judge in asked if judge.error), "it does not answer")
        whose = "spec.rewardJudging.deployed" if facts.judge_model_wanted else "spec.api.baseUrl"
        text = f"the judge endpoint ({whose}) fails: {words}; judging goes on by itself once it answers"
        return Verdict(ConditionType.JUDGING_READY, "False", Reason.ENDPOINT_FAILING, text)
    return verdict


def _serving_ready(facts: Facts) -> Verdict:
    verdict = _worst(
        ConditionType.SERVING_READY, facts, names.ENGINE, names.GATEWAY, say="engines and gateway are ready"
    )
    engines = facts.sync.engines if facts.sync is not None else ()
    states = [view.state for view in engines if view.state is not None]
    return _without_model(verdict, names.ENGINE, states)


def _without_model(verdict: Verdict, component: str, states: Sequence[AgentState | TrainerState]) -> Verdict:
    """A process that only waits for its model has no fault of its own: say what it misses instead of `starting`."""
    waits = next((state for state in states if state.phase == "waiting_for_model"), None)
    if verdict.status != "False" or verdict.reason != Reason.STARTING or waits is None:
        return verdict
    return Verdict(verdict.type, "False", Reason.MODEL_MISSING, f"{component}: {waits.error}")


def _environment(facts: Facts) -> Verdict:
    if not facts.environment_enabled:
        return Verdict(ConditionType.ENVIRONMENT_READY, "True", Reason.NOT_ENABLED)
    return _worst(ConditionType.ENVIRONMENT_READY, facts, names.ENVIRONMENT, say="environment is ready")


def _training(facts: Facts) -> Verdict:
    verdict = _worst(ConditionType.TRAINING_READY, facts, names.TRAINER, say="trainer is ready")
    state = facts.telemetry.trainer
    if verdict.status == "True" and state is not None and state.phase == "failed":
        text = f"the trainer failed: {state.error or 'no reason given'}"
        return Verdict(ConditionType.TRAINING_READY, "False", Reason.TRAINER_FAILED, text)
    return _without_model(verdict, names.TRAINER, [state] if state is not None else [])


def _worst(kind: ConditionType, facts: Facts, *components: str, say: str) -> Verdict:
    """The first component with a fault, else the first that is not ready, else ready."""
    if facts.invalid is not None:
        return Verdict(kind, "Unknown", Reason.INVALID_SPEC)
    found = [_component_cause(facts, component) for component in components]
    unready = [fault for fault in found if fault is not None]
    if not unready:
        none_wanted = all(facts.components[component].desired == 0 for component in components)
        if none_wanted and not facts.suspend:
            return Verdict(kind, "True", Reason.NONE_WANTED, "spec asks for no pods")
        return Verdict(kind, "True", Reason.ALL_PODS_READY, say)
    telling = next((fault for fault in unready if fault.reason not in CALM), unready[0])
    return Verdict(kind, "False", telling.reason, telling.message)


def _component_cause(facts: Facts, component: str) -> Cause | None:
    """Why a component is not ready; None when it is."""
    part = facts.components[component]
    found = _unready_cause(facts, component, part)
    return _stuck(component, part, found) if found is not None else None


def _unready_cause(facts: Facts, component: str, part: ComponentFacts) -> Cause | None:
    if facts.suspend:
        return Cause(Reason.SUSPENDED, "suspended by spec.suspend")
    if part.blocked and part.workload is None:
        return _blocked_cause(facts, component)
    fault = next((fault for fault in facts.faults if fault.component == component), None)
    if fault is not None:
        return Cause(Reason.APPLY_FAILED, fault.message)
    current = part.pods if part.blocked else part.current()
    unready = [pod for pod in current if not is_ready(pod)]
    causes = [cause(pod) for pod in unready]
    telling = next((found for found in causes if found.reason != Reason.STARTING), causes[0] if causes else None)
    if telling is not None:
        return telling
    old = len(part.pods) - len(current)
    if old:
        return Cause(Reason.ROLLING_OUT, f"{component}: {old} pods of an older revision still run")
    if len(current) < part.desired:
        return _missing_cause(component, part, len(current))
    return None


def _stuck(component: str, part: ComponentFacts, found: Cause) -> Cause:
    """A start or a roll that is past its deadline is no longer just under way."""
    if found.reason not in (Reason.STARTING, Reason.ROLLING_OUT, Reason.PODS_MISSING):
        return found
    for condition in (part.workload or {}).get("status", {}).get("conditions") or []:
        if condition["type"] == "Progressing" and condition.get("reason") == "ProgressDeadlineExceeded":
            seconds = (part.workload or {})["spec"].get("progressDeadlineSeconds")
            text = f"{component}: no progress for {seconds} s ({found.message})"
            return Cause(Reason.PROGRESS_DEADLINE_EXCEEDED, text)
    return found


def _blocked_cause(facts: Facts, component: str) -> Cause:
    mine = [problem.message for problem in facts.secret_problems if component in problem.components]
    if mine:
        return Cause(Reason.BLOCKED, f"{component} is not started: {mine[0]}")
    return Cause(Reason.CLAIM_MISSING, f"{component} is not started: {'; '.join(facts.claim_problems)}")


def _missing_cause(component: str, part: ComponentFacts, have: int) -> Cause:
    for condition in (part.workload or {}).get("status", {}).get("conditions") or []:
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            return Cause(Reason.POD_CREATE_FAILED, f"{component}: {condition.get('message', 'pods cannot be created')}")
    if have == 0 and part.workload is None:
        return Cause(Reason.STARTING, f"{component}: being created")
    return Cause(Reason.PODS_MISSING if have else Reason.STARTING, f"{component}: {have} of {part.desired} pods exist")


def _paused(sync: SyncView | None) -> Verdict:
    if sync is None or sync.lease is None:
        return Verdict(ConditionType.WEIGHT_SYNC_PAUSED, "Unknown", Reason.STARTING)
    hold = sync.lease.hold
    if hold is None:
        return Verdict(ConditionType.WEIGHT_SYNC_PAUSED, "False", Reason.RUNNING, "submissions run")
    text = f"submissions pause for version {hold.pause_version} (epoch {hold.epoch}, at most {hold.duration_sec} s)"
    return Verdict(ConditionType.WEIGHT_SYNC_PAUSED, "True", Reason.HELD, text)


def _degraded(sync: SyncView | None) -> Verdict:
    if sync is None or sync.lease is None:
        return Verdict(ConditionType.WEIGHT_SYNC_DEGRADED, "Unknown", Reason.STARTING)
    if sync.trouble is not None:
        return Verdict(ConditionType.WEIGHT_SYNC_DEGRADED, "True", sync.trouble.reason, sync.trouble.message)
    return Verdict(ConditionType.WEIGHT_SYNC_DEGRADED, "False", Reason.SYNCED)


_CANARY_ENDED = {
    "Promoted": Reason.CANARY_PROMOTED,
    "RolledBack": Reason.CANARY_ROLLED_BACK,
    "Cancelled": Reason.CANARY_CANCELLED,
}


def _canary(sync: SyncView | None) -> list[Verdict]:
    """Nothing where no rollout is set."""
    if sync is None or not sync.rollout_wanted:
        return []
    kind, seen = ConditionType.CANARY_SERVING, sync.rollout
    if seen is None:
        return [Verdict(kind, "False", Reason.NO_CANARY)]
    if seen.state in ("Serving", "Promoting"):
        return [Verdict(kind, "True", Reason.CANARY_SERVES, f"canary {seen.canary.version}: {seen.message}")]
    if seen.state == "Waiting":
        return [Verdict(kind, "False", Reason.CANARY_WAITS, f"{seen.canary.version} waits: {seen.message}")]
    return [Verdict(kind, "False", _CANARY_ENDED[seen.state], seen.message)]


def _drift(facts: Facts) -> Verdict:
    if facts.telemetry.trainer is None:
        return Verdict(ConditionType.DRIFT_HIGH, "Unknown", Reason.NOT_MEASURED)
    drift = fresh_drift(facts.telemetry)
    if drift is None:
        return Verdict(ConditionType.DRIFT_HIGH, "Unknown", Reason.NO_FRESH_SAMPLES, "no samples of lag 0 yet")
    if drift > DRIFT_LIMIT:
        text = f"fresh samples differ by {drift:.3g} between engine and trainer (limit {DRIFT_LIMIT})"
        return Verdict(ConditionType.DRIFT_HIGH, "True", Reason.ABOVE_LIMIT, text)
    return Verdict(ConditionType.DRIFT_HIGH, "False", Reason.WITHIN_LIMIT)


def _held(facts: Facts) -> Verdict:
    if facts.invalid is not None and facts.hold is None:
        return Verdict(ConditionType.SUBMISSIONS_HELD, "Unknown", Reason.INVALID_SPEC)
    if facts.hold is not None and facts.hold_state == HoldState.IN_FORCE:
        text = f"submissions are held until {_until(facts)}: {facts.hold.reason}"
        return Verdict(ConditionType.SUBMISSIONS_HELD, "True", Reason.ON_HOLD, text)
    if facts.hold_state == HoldState.OVER:
        text = f"the hold ended at {_until(facts)}; spec.policyServing.hold can go"
        return Verdict(ConditionType.SUBMISSIONS_HELD, "False", Reason.HOLD_OVER, text)
    return Verdict(ConditionType.SUBMISSIONS_HELD, "False", Reason.NOT_ON_HOLD, "submissions are not on hold")


def _until(facts: Facts) -> str:
    return facts.hold.until.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if facts.hold is not None else "not set"


def _suspended(facts: Facts) -> Verdict:
    if not facts.suspend:
        return Verdict(ConditionType.SUSPENDED, "False", Reason.NOT_SUSPENDED)
    left = sum(len(part.pods) + part.ending for part in facts.components.values())
    if left:
        return Verdict(ConditionType.SUSPENDED, "False", Reason.SUSPENDING, f"{left} pods are still ending")
    return Verdict(ConditionType.SUSPENDED, "True", Reason.SUSPENDED, "no pods run; set spec.suspend to false to go on")


def dated(verdict: Verdict, facts: Facts) -> out.Condition:
    before = next((old for old in facts.previous.conditions or [] if old.type == verdict.type), None)
    since = before.last_transition_time if before and before.status == verdict.status else facts.now
    return out.Condition(
        type=verdict.type,
        status=verdict.status,
        reason=verdict.reason,
        message=verdict.message[:4096],
        last_transition_time=since,
        observed_generation=facts.generation,
    )
