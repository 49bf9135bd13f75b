"""From one observation to the facts of the status and the world of the weight sync. Pure."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from openclaw_core import leases, names
from openclaw_core.config import components as configs
from openclaw_core.status import ConditionType, TrainingStatus
from openclaw_operator import conditions, kinds
from openclaw_operator.apply import Fault
from openclaw_operator.holds import HoldState
from openclaw_operator.needs import wrong_api_key_env
from openclaw_operator.observe import Observation
from openclaw_operator.plan import Plan, desired_replicas, live_workload, wanted_components
from openclaw_operator.pods import is_ready
from openclaw_operator.reasons import Reason
from openclaw_operator.secrets import Resolution
from openclaw_operator.telemetry import Sources, Telemetry
from openclaw_operator.training import Training
from openclaw_operator.weightsync import model as m

Object = dict[str, Any]
_DRIFTS_LOOKED_AT = 256
"""Newest steps among which a canary's own samples are looked for."""


def previous_status(body: Object) -> TrainingStatus:
    """Status as last written; an unreadable one (older CRD) counts as empty."""
    try:
        return TrainingStatus.model_validate(body.get("status") or {})
    except ValueError:
        return TrainingStatus()


def invalid_spec(message: str) -> conditions.Verdict:
    return conditions.Verdict(ConditionType.CONFIG_VALID, "False", Reason.INVALID_SPEC, message)


def wrong_env(training: Training) -> conditions.Verdict | None:
    """ConfigValid=False when the judge's key would be mounted over a variable the pod needs."""
    message = wrong_api_key_env(training.spec)
    if message is None:
        return None
    return conditions.Verdict(ConditionType.CONFIG_VALID, "False", Reason.WRONG_API_KEY_ENV, message)


def component_facts(training: Training, seen: Observation, wanted: Plan) -> dict[str, conditions.ComponentFacts]:
    """Facts of every component, wanted or not (an unwanted one has `desired` 0)."""
    found = {}
    for component in names.WORKLOADS:
        live, planned = live_workload(seen.children, component, wanted), wanted.workload(component)
        desired = desired_replicas(training, component)
        if live is not None and planned is not None and "replicas" not in planned["spec"]:
            desired = live["spec"].get("replicas", desired)
        found[component] = conditions.ComponentFacts(
            desired=desired,
            pods=seen.pods_of(component),
            ending=seen.ending_of(component),
            workload=live,
            revision=wanted.revision(component),
            secrets=wanted.secrets(component),
            blocked=component in wanted.blocked,
        )
    return found


def status_facts(
    training: Training,
    seen: Observation,
    wanted: Plan,
    *,
    now: str,
    hold_state: HoldState,
    resolution: Resolution,
    claim_problems: Sequence[str],
    faults: Sequence[Fault],
    sync: m.SyncView | None,
    telemetry: Telemetry,
) -> conditions.Facts:
    """Everything the status of a valid training is computed from."""
    spec = training.spec
    return conditions.Facts(
        generation=training.generation,
        now=now,
        previous=previous_status(seen.body),
        invalid=wrong_env(training),
        suspend=spec.suspend,
        hold=spec.policy_serving.hold,
        hold_state=hold_state,
        judge_model_wanted=names.JUDGE_MODEL in wanted_components(spec),
        environment_enabled=names.ENVIRONMENT in wanted_components(spec),
        endpoint=configs.public_url(training.name, training.namespace, spec.policy_serving),
        components=component_facts(training, seen, wanted),
        secret_problems=resolution.problems,
        claim_problems=claim_problems,
        faults=faults,
        sync=sync,
        telemetry=telemetry,
    )


def world(training: Training, seen: Observation, pace: int = 1) -> m.World:
    """What the weight sync sees: engines and gateways with an address, the newest version, the pinned one."""
    engines = [(pod, pod.get("status", {}).get("podIP")) for pod in seen.pods_of(names.ENGINE)]
    gateways = [(pod, pod.get("status", {}).get("podIP")) for pod in seen.pods_of(names.GATEWAY)]
    return m.World(
        engines=tuple(m.EnginePod(*_identity(pod), ip, is_ready(pod)) for pod, ip in engines if ip),
        gateways=tuple(m.GatewayPod(*_identity(pod), ip, is_ready(pod)) for pod, ip in gateways if ip),
        published=_published(training, seen),
        pinned=training.spec.policy_serving.pinned_version,
        pause_timeout_sec=training.spec.policy_serving.pause_timeout_sec,
        target_missing=("ConfigMap", names.target_config_map(training.name)) not in seen.children,
        lease_version=_version(seen.children.get(("Lease", names.weight_sync_lease(training.name)))),
        sync_request=(seen.body["metadata"].get("annotations") or {}).get(names.ANNOTATION_SYNC),
        rollout=training.spec.policy_serving.rollout,
        sender=_sender(training, seen),
        pace=pace,
    )


def measured(telemetry: Telemetry) -> m.Measured:
    """What decides about a canary: scores by version, and the drift of each version's own fresh samples.

    A step's fresh samples are of the version it starts from, which is the one the step before published.
    """
    updates = telemetry.trainer.updates[-_DRIFTS_LOOKED_AT:] if telemetry.trainer is not None else []
    drifts = tuple(
        (before.version, update.logprob_abs_diff_fresh)
        for before, update in pairwise(updates)
        if update.logprob_abs_diff_fresh is not None
    )
    return m.Measured(telemetry.stats.rollout if telemetry.stats is not None else None, drifts)


def _sender(training: Training, seen: Observation) -> str | None:
    """Pod IP of rank 0 where versions are broadcast."""
    if not training.spec.broadcasts:
        return None
    pods = [pod for pod in seen.pods_of(names.TRAINER) if is_ready(pod) and _is_lead(pod)]
    return next((pod["status"]["podIP"] for pod in pods if pod["status"].get("podIP")), None)


def _is_lead(pod: Object) -> bool:
    """The only pod of a trainer, or the first of several (`…-0`)."""
    index = pod["metadata"].get("labels", {}).get(kinds.LABEL_POD_INDEX)
    return index in (None, "0")


def sources(seen: Observation, gateway_token: str) -> Sources:
    """Where to ask for telemetry: ready pods, and a trainer that is not ready yet, for it may say why."""

    def ips(component: str, *, ready: bool = True) -> tuple[str, ...]:
        pods = [pod for pod in seen.pods_of(component) if is_ready(pod) or not ready]
        return tuple(pod["status"]["podIP"] for pod in pods if pod.get("status", {}).get("podIP"))

    return Sources(ips(names.GATEWAY), ips(names.TRAINER, ready=False), ips(names.JUDGE), gateway_token)


def _identity(pod: Object) -> tuple[str, str]:
    return pod["metadata"]["uid"], pod["metadata"]["name"]


def _version(found: Object | None) -> str:
    return found["metadata"]["resourceVersion"] if found is not None else ""


def _published(training: Training, seen: Observation) -> leases.Published:
    found = seen.children.get(("Lease", names.published_lease(training.name)))
    try:
        return leases.parse_published(found) if found is not None else leases.Published()
    except leases.LeaseFormatError:
        return leases.Published()
