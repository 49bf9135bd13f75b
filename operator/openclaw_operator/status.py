"""Status of a training from facts: phase, counts, conditions, and the events of a transition. Pure.

What each condition says is `conditions`' matter.
"""

from collections.abc import Mapping
from typing import Any

from openclaw_core import names
from openclaw_core import status as out
from openclaw_core.status import ConditionType, Phase
from openclaw_operator.conditions import CALM, ComponentFacts, Facts, Verdict, dated, verdicts
from openclaw_operator.events import Event
from openclaw_operator.pods import is_ready
from openclaw_operator.reasons import Reason
from openclaw_operator.telemetry import numbers
from openclaw_operator.weightsync.model import Phase as SyncPhase
from openclaw_operator.weightsync.model import RolloutSide, RolloutView, SyncView


def compute(facts: Facts) -> out.TrainingStatus:
    """The whole status. Without any change in the facts it equals the previous one."""
    said = verdicts(facts)
    ready = said[0]
    held = next(verdict for verdict in said if verdict.type == ConditionType.SUBMISSIONS_HELD)
    phase = _phase(facts, {verdict.type: verdict for verdict in said})
    blank = ComponentFacts(desired=0)
    found = {component: facts.components.get(component, blank) for component in names.WORKLOADS}
    return out.TrainingStatus(
        observed_generation=facts.generation,
        phase=phase,
        message=ready.message or (held.message if held.status == "True" else None),
        endpoint=facts.endpoint or facts.previous.endpoint,
        serving=_serving(facts, found[names.ENGINE]),
        gateway=_component(found[names.GATEWAY]),
        judging=_component(found[names.JUDGE]),
        judge_model=_component(found[names.JUDGE_MODEL]) if facts.judge_model_wanted else None,
        trainer=_component(found[names.TRAINER]),
        environment=_component(found[names.ENVIRONMENT]) if facts.environment_enabled else None,
        weights=_weights(facts.sync) or facts.previous.weights,
        training=numbers(facts.telemetry, facts.previous.training),
        conditions=[dated(verdict, facts) for verdict in said],
    )


def events(previous: out.TrainingStatus, current: out.TrainingStatus) -> list[Event]:
    """One event per condition whose status or reason moved, except those that only restate another."""
    before = {condition.type: condition for condition in previous.conditions or []}
    found = []
    for condition in current.conditions or []:
        old = before.get(condition.type)
        if _restates(condition) or (old and (old.status, old.reason) == (condition.status, condition.reason)):
            continue
        bad = condition.status == _BAD.get(condition.type, "False") and condition.reason not in CALM
        if bad:
            found.append(Event("Warning", condition.reason, f"{condition.type}: {condition.message}"))
        elif old is not None and old.status != condition.status and "Unknown" not in (old.status, condition.status):
            text = condition.message or f"{condition.type} is {condition.status}"
            found.append(Event("Normal", condition.reason, text))
    return found


def _restates(condition: out.Condition) -> bool:
    """Another condition says it, too: of a training that is suspended, `Suspended` speaks for every component."""
    suspended = condition.reason in (Reason.SUSPENDED, Reason.SUSPENDING)
    return condition.type in _SILENT or (suspended and condition.type != ConditionType.SUSPENDED)


_SILENT = frozenset({ConditionType.READY, ConditionType.WEIGHT_SYNC_PAUSED, ConditionType.CANARY_SERVING})
_BAD: Mapping[str, str] = {
    ConditionType.WEIGHT_SYNC_DEGRADED: "True",
    ConditionType.DRIFT_HIGH: "True",
    ConditionType.SUBMISSIONS_HELD: "never",
    ConditionType.CANARY_SERVING: "never",
    ConditionType.SUSPENDED: "never",
}


def _phase(facts: Facts, verdicts: Mapping[ConditionType, Verdict]) -> Phase:
    if facts.invalid is not None:
        return Phase.INVALID
    if facts.suspend:
        done = verdicts[ConditionType.SUSPENDED].status == "True"
        return Phase.SUSPENDED if done else Phase.SUSPENDING
    if verdicts[ConditionType.READY].status == "True":
        return Phase.RUNNING
    if facts.secret_problems or facts.claim_problems:
        return Phase.BLOCKED
    ran = facts.previous.phase in (Phase.RUNNING, Phase.DEGRADED)
    edited = facts.previous.observed_generation not in (None, facts.generation)
    return Phase.DEGRADED if ran and not edited else Phase.STARTING


def _component(part: ComponentFacts) -> out.Component:
    current = part.pods if part.blocked else part.current()
    ready = sum(1 for pod in current if is_ready(pod))
    return out.Component(ready=ready, desired=part.desired, updated=len(current), summary=f"{ready}/{part.desired}")


def _serving(facts: Facts, part: ComponentFacts) -> out.Serving:
    common = _component(part).model_dump()
    return out.Serving(**common, replicas=len(part.pods), selector=_selector(facts))


def _selector(facts: Facts) -> str:
    workload = facts.components.get(names.ENGINE, ComponentFacts(desired=0)).workload
    labels = (workload or {}).get("spec", {}).get("selector", {}).get("matchLabels") or {}
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _weights(sync: SyncView | None) -> out.Weights | None:
    if sync is None or sync.lease is None:
        return None
    return out.Weights(
        target=sync.target,
        published=sync.published,
        serving=sync.lease.serving_version,
        bad_versions=list(sync.lease.bad_versions) or None,
        per_engine=[_engine(view.pod, view.state) for view in sync.engines],
        last_sync=sync.last_sync,
        rollout=_rollout(sync.rollout),
        sync_request=_request(sync),
    )


def _rollout(seen: RolloutView | None) -> out.Rollout | None:
    if seen is None:
        return None
    return out.Rollout(
        state=seen.state,
        started_at=seen.since,
        canary=_side(seen.canary),
        stable=_side(seen.stable),
        message=seen.message[:512],
    )


def _side(side: RolloutSide) -> out.RolloutSide:
    mean = side.scores.mean
    return out.RolloutSide(
        version=side.version, turns=side.scores.turns, score_mean=round(mean, 4) if mean is not None else None
    )


def _request(sync: SyncView) -> out.SyncRequest | None:
    asked = sync.request
    return out.SyncRequest(id=asked.id, result=asked.result, message=asked.message or None) if asked else None


def _engine(pod: str, state: Any) -> out.EngineWeights:
    if state is None:
        return out.EngineWeights(pod=pod)
    return out.EngineWeights(
        pod=pod,
        version=state.version,
        phase=state.phase,
        sglang_version=state.sglang_version,
        checksum=state.checksum,
        error=state.error,
    )


def mirrored(sync: SyncView | None) -> str | None:
    """Value of the training's annotation `openclawrl.io/weight-sync`; None while nothing is known."""
    if sync is None or sync.lease is None:
        return None
    hold = sync.lease.hold
    if hold is not None:
        return f"paused epoch={hold.epoch} version={hold.pause_version}"
    word = "running" if sync.phase == SyncPhase.IDLE else sync.phase.lower()
    return f"{word} epoch={sync.lease.epoch} serving={sync.lease.serving_version or ''}"
