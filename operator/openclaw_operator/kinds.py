"""The kinds of child objects: where each lives in the API, and whether an unwanted one is pruned.

Claims hold data, Leases hold the history of the sync and the Secret its tokens: those are never pruned, only left to
the garbage collector when the training goes.
"""

from dataclasses import dataclass

from openclaw_core import kube, names


@dataclass(frozen=True)
class Kind:
    """One kind of child."""

    kind: str
    api_version: str
    plural: str
    prunable: bool = True

    def collection(self, namespace: str | None) -> str:
        """URL path of a namespace's objects, or of the cluster's."""
        return kube.path(self.api_version, self.plural, namespace)

    def path(self, namespace: str, name: str, subresource: str = "") -> str:
        return kube.path(self.api_version, self.plural, namespace, name, subresource)


TRAINING = Kind(names.KIND, names.API_VERSION, names.PLURAL, prunable=False)
POD = Kind("Pod", "v1", "pods", prunable=False)
SECRET = Kind("Secret", "v1", "secrets", prunable=False)
LEASE = Kind("Lease", "coordination.k8s.io/v1", "leases", prunable=False)
CONFIG_MAP = Kind("ConfigMap", "v1", "configmaps")
CLAIM = Kind("PersistentVolumeClaim", "v1", "persistentvolumeclaims", prunable=False)
DEPLOYMENT = Kind("Deployment", "apps/v1", "deployments")
STATEFUL_SET = Kind("StatefulSet", "apps/v1", "statefulsets")
LEADER_WORKER_SET = Kind("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", "leaderworkersets")
"""Only where the cluster has it; then a trainer of several pods is one."""
DISRUPTION_BUDGET = Kind("PodDisruptionBudget", "policy/v1", "poddisruptionbudgets")
NETWORK_POLICY = Kind("NetworkPolicy", "networking.k8s.io/v1", "networkpolicies")

APPLIED: tuple[Kind, ...] = (
    Kind("ServiceAccount", "v1", "serviceaccounts"),
    Kind("Role", "rbac.authorization.k8s.io/v1", "roles"),
    Kind("RoleBinding", "rbac.authorization.k8s.io/v1", "rolebindings"),
    CONFIG_MAP,
    CLAIM,
    LEASE,
    Kind("Service", "v1", "services"),
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    DEPLOYMENT,
    STATEFUL_SET,
)
"""Kinds applied by server-side apply, in order: what pods refer to comes before what makes pods."""
WORKLOADS = frozenset({DEPLOYMENT.kind, STATEFUL_SET.kind, LEADER_WORKER_SET.kind})
"""Kinds that make pods."""

BY_NAME = {kind.kind: kind for kind in (*APPLIED, LEADER_WORKER_SET, POD, SECRET, TRAINING)}
LABEL_POD_INDEX = "apps.kubernetes.io/pod-index"
"""Put on the pods of a StatefulSet by its controller."""
EVENTS = "events"
EVENT_SOURCE = "openclaw-operator"
CONTENT_OF_OTHERS = frozenset({LEASE.kind})
"""Kinds whose annotations and spec have other writers; only labels, owner and the admin's hold are ours."""
