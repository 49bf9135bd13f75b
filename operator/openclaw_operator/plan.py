"""From a training and what was found to the whole set of children it should have. Pure.

A component whose Secret key or claim is missing is *blocked*: it is not started, and if it runs already it is left as
it is. Everything else is planned without it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from openclaw_core import names
from openclaw_core.config.spec import TrainingSpec
from openclaw_operator.builders import leases, rbac, services, storage
from openclaw_operator.builders.components import BUILDERS
from openclaw_operator.builders.workload import Context, config_map, deployment
from openclaw_operator.images import Images
from openclaw_operator.training import Training

Object = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """Children in no particular order, and Deployments that are neither applied nor pruned."""

    children: tuple[Object, ...]
    blocked: frozenset[str]

    def revision(self, component: str) -> str | None:
        """Revision the component's pods should carry; None when it is not planned."""
        for child in self.children:
            if child["kind"] == "Deployment" and _component(child) == component:
                note: str = child["spec"]["template"]["metadata"]["annotations"][names.ANNOTATION_REVISION]
                return note
        return None

    def secrets(self, component: str) -> str | None:
        """Hash of the Secrets the component's pods should carry."""
        for child in self.children:
            if child["kind"] == "Deployment" and _component(child) == component:
                note: str | None = child["spec"]["template"]["metadata"]["annotations"].get(names.ANNOTATION_SECRETS)
                return note
        return None


def wanted_components(spec: TrainingSpec) -> tuple[str, ...]:
    """Components this training runs at all."""
    return tuple(
        component
        for component in names.COMPONENTS
        if component != names.ENVIRONMENT or spec.environment_hosting.enabled
    )


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
        *services.services(training),
        *(deployment(context, workload) for workload in workloads if workload.component not in blocked),
    ]
    return Plan(tuple(children), blocked)


def scaled_elsewhere(deployments: Mapping[str, Object]) -> frozenset[str]:
    """Components whose Deployment's `replicas` an autoscaler wrote last, through the scale subresource."""
    return frozenset(component for component, found in deployments.items() if _autoscaled(found))


def unwanted(wanted: Plan, training: Training, found: Mapping[tuple[str, str], Object]) -> list[tuple[str, str]]:
    """(kind, name) of children this training owns and no longer wants. The target's file is the weight sync's."""
    keep = {(child["kind"], child["metadata"]["name"]) for child in wanted.children}
    keep.add(("ConfigMap", names.target_config_map(training.name)))
    return [
        key
        for key, item in found.items()
        if key not in keep and _owned_by(item, training.uid) and _component(item) not in wanted.blocked
    ]


def _component(item: Object) -> str | None:
    component: str | None = (item["metadata"].get("labels") or {}).get(names.LABEL_COMPONENT)
    return component


def _owned_by(item: Object, uid: str) -> bool:
    return any(reference["uid"] == uid for reference in item["metadata"].get("ownerReferences") or [])


def _autoscaled(found: Object) -> bool:
    return any(
        entry.get("subresource") == "scale"
        and entry.get("manager") == "kube-controller-manager"
        and "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {})
        for entry in found["metadata"].get("managedFields") or []
    )
