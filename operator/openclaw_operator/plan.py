"""From a training and what was found to the whole set of children it should have. Pure.

A component whose Secret key or claim is missing is *blocked*: it is not started, and if it runs already it is left as
it is. Everything else is planned without it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openclaw_core import names
from openclaw_core.config.spec import TrainingSpec
from openclaw_operator import kinds
from openclaw_operator.builders import disruption, leases, network, ranks, rbac, services, storage
from openclaw_operator.builders.components import BUILDERS
from openclaw_operator.builders.workload import Context, Workload, config_map, deployment
from openclaw_operator.images import Images
from openclaw_operator.live import autoscaled
from openclaw_operator.pods import is_current
from openclaw_operator.training import Training

Object = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """Children in no particular order, and components whose workload is neither applied nor pruned."""

    children: tuple[Object, ...]
    blocked: frozenset[str]

    def workload(self, component: str) -> Object | None:
        """What makes the component's pods; None when it is not planned."""
        return next((c for c in self.children if c["kind"] in kinds.WORKLOADS and component_of(c) == component), None)

    def revision(self, component: str) -> str | None:
        """Revision the component's pods should carry."""
        return self._note(component, names.ANNOTATION_REVISION)

    def secrets(self, component: str) -> str | None:
        """Hash of the Secrets the component's pods should carry."""
        return self._note(component, names.ANNOTATION_SECRETS)

    def outline(self) -> "Plan":
        """What a status is computed from: of the workloads their identity, replicas and pods' annotations."""
        workloads = (child for child in self.children if child["kind"] in kinds.WORKLOADS)
        return Plan(tuple(map(_outline, workloads)), self.blocked)

    def _note(self, component: str, annotation: str) -> str | None:
        found = self.workload(component)
        note: str | None = _pod_template(found)["metadata"]["annotations"].get(annotation) if found else None
        return note


def _outline(workload: Object) -> Object:
    metadata, template = workload["metadata"], _pod_template(workload)
    spec: Object = {"template": {"metadata": {"annotations": template["metadata"]["annotations"]}}}
    if "replicas" in workload["spec"]:
        spec["replicas"] = workload["spec"]["replicas"]
    return {
        "kind": workload["kind"],
        "metadata": {"name": metadata["name"], "labels": metadata["labels"]},
        "spec": spec,
    }


def _pod_template(workload: Object) -> Object:
    spec: Object = workload["spec"]
    found: Object = (
        spec["leaderWorkerTemplate"]["workerTemplate"] if "leaderWorkerTemplate" in spec else spec["template"]
    )
    return found


def wanted_components(spec: TrainingSpec) -> tuple[str, ...]:
    """Components this training runs at all."""
    left_out = {
        names.ENVIRONMENT: not spec.environment_hosting.enabled,
        names.JUDGE_MODEL: spec.reward_judging.deployed is None,
    }
    return tuple(component for component in names.WORKLOADS if not left_out.get(component))


def desired_replicas(training: Training, component: str) -> int:
    """Pods the spec asks for; 0 while suspended."""
    if training.spec.suspend or component not in wanted_components(training.spec):
        return 0
    return BUILDERS[component](Context(training, Images({}))).replicas


def plan(context: Context, blocked: frozenset[str]) -> Plan:
    """Every child the training should have."""
    training = context.training
    components = wanted_components(training.spec)
    workloads = [BUILDERS[component](context) for component in components]
    children = [
        *rbac.service_accounts(training, components),
        *rbac.roles(training),
        *(config_map(context, workload) for workload in workloads),
        *storage.claims(training),
        *leases.leases(training, context.hold),
        *services.services(training, groups=context.groups),
        *disruption.budgets(training),
        *network.policies(training, components, context.network),
        *(child for workload in workloads if workload.component not in blocked for child in _makers(context, workload)),
    ]
    return Plan(tuple(children), blocked)


def _makers(context: Context, workload: Workload) -> list[Object]:
    """What makes the component's pods."""
    if workload.component == names.TRAINER and ranks.together(context.training):
        return ranks.controllers(context, workload)
    return [deployment(context, workload)]


def live_workload(found: Mapping[tuple[str, str], Object], component: str, wanted: Plan | None = None) -> Object | None:
    """The live object that makes a component's pods: of the planned kind, else of any."""
    planned = wanted.workload(component) if wanted is not None else None
    for (kind, _), item in found.items():
        if kind in ({planned["kind"]} if planned else kinds.WORKLOADS) and component_of(item) == component:
            return item
    return None


def scaled_elsewhere(deployments: Mapping[str, Object]) -> frozenset[str]:
    """Components whose Deployment's `replicas` an autoscaler wrote last, through the scale subresource."""
    return frozenset(component for component, found in deployments.items() if autoscaled(found))


def outdated(wanted: Plan, pods: Mapping[str, Sequence[Object]]) -> frozenset[str]:
    """Components that train together and still have pods of an older revision: all of those go first."""
    found = wanted.workload(names.TRAINER)
    if found is None or found["kind"] == kinds.DEPLOYMENT.kind:
        return frozenset()
    revision, secrets = wanted.revision(names.TRAINER), wanted.secrets(names.TRAINER)
    old = any(not is_current(pod, revision, secrets) for pod in pods.get(names.TRAINER, ()))
    return frozenset({names.TRAINER}) if old else frozenset()


def unwanted(wanted: Plan, training: Training, found: Mapping[tuple[str, str], Object]) -> list[tuple[str, str]]:
    """(kind, name) of children this training owns and no longer wants. The target's file is the weight sync's."""
    keep = {(child["kind"], child["metadata"]["name"]) for child in wanted.children}
    keep.add(("ConfigMap", names.target_config_map(training.name)))
    return [
        key
        for key, item in found.items()
        if key not in keep and _owned_by(item, training.uid) and component_of(item) not in wanted.blocked
    ]


def component_of(item: Object) -> str | None:
    component: str | None = (item["metadata"].get("labels") or {}).get(names.LABEL_COMPONENT)
    return component


def _owned_by(item: Object, uid: str) -> bool:
    return any(reference["uid"] == uid for reference in item["metadata"].get("ownerReferences") or [])
