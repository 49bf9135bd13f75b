"""ServiceAccount of each component, and the two Roles: gateway and trainer touch one Lease each."""

from collections.abc import Iterable
from typing import Any

from openclaw_core import names
from openclaw_operator.builders import metadata
from openclaw_operator.training import Training

Object = dict[str, Any]
_LEASES = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}


def service_accounts(training: Training, components: Iterable[str]) -> list[Object]:
    return [_service_account(training, component) for component in components]


def roles(training: Training) -> list[Object]:
    """Roles and their bindings. The operator can grant only verbs it holds itself."""
    pause, published = names.weight_sync_lease(training.name), names.published_lease(training.name)
    gateway_rules = [
        {**_LEASES, "resourceNames": [pause], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]},
    ]
    trainer_rules = [
        {**_LEASES, "resourceNames": [published], "verbs": ["get", "patch"]},
        {**_LEASES, "resourceNames": [pause], "verbs": ["get"]},
    ]
    return [
        *_role(training, names.GATEWAY, gateway_rules),
        *_role(training, names.TRAINER, trainer_rules),
    ]


def _service_account(training: Training, component: str) -> Object:
    name = names.component(training.name, component)
    return {
        **metadata.child(training, "v1", "ServiceAccount", name, component),
        "automountServiceAccountToken": component in (names.GATEWAY, names.TRAINER),
    }


def _role(training: Training, component: str, rules: list[Object]) -> list[Object]:
    name, api = names.component(training.name, component), "rbac.authorization.k8s.io"
    return [
        {**metadata.child(training, f"{api}/v1", "Role", name, component), "rules": rules},
        {
            **metadata.child(training, f"{api}/v1", "RoleBinding", name, component),
            "roleRef": {"apiGroup": api, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": training.namespace}],
        },
    ]
