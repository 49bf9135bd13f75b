"""A trainer of several pods: a StatefulSet with a headless Service, or a LeaderWorkerSet where the cluster has one.

    pod 0 ─ torchrun, rank 0: leads, serves /state     ◀─ meet at <pod 0>:29500 ─▶     pods 1…n−1 ─ follow

Each pod knows its number from a label the controller of its set writes. The pods train one model together, so they are
never rolled one by one: first all of an older revision go (`Context.outdated`), then the new ones come.
"""

from typing import Any

from openclaw_core import names
from openclaw_operator import kinds
from openclaw_operator.builders import metadata
from openclaw_operator.builders.workload import Context, Workload, replicas, template
from openclaw_operator.training import Training

Object = dict[str, Any]
_GROUP_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"


def together(training: Training) -> bool:
    """Whether the trainer is more than one pod."""
    return training.spec.policy_training.nodes > 1


def environment(context: Context) -> list[Object]:
    """What torchrun needs to know: which pod this is, and where they meet. Nothing for a single pod."""
    training = context.training
    if not together(training):
        return []
    label = _GROUP_INDEX if context.groups else kinds.LABEL_POD_INDEX
    first = names.ranks(training.name) if context.groups else names.component(training.name, names.TRAINER)
    meeting = f"{first}-0.{names.ranks(training.name)}.{training.namespace}.svc:{names.PORT_RENDEZVOUS}"
    return [
        {"name": names.ENV_NODE_RANK, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}},
        {"name": names.ENV_RENDEZVOUS, "value": meeting},
    ]


def controllers(context: Context, workload: Workload) -> list[Object]:
    """The set, and for a StatefulSet the Service that names its pods (a LeaderWorkerSet makes its own)."""
    if context.groups:
        return [_group(context, workload)]
    return [_stateful_set(context, workload)]


def services(training: Training, *, groups: bool) -> list[Object]:
    if not together(training) or groups:
        return []
    manifest = metadata.child(training, "v1", "Service", names.ranks(training.name), names.TRAINER)
    spec: Object = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,  # they meet before any of them is ready
        "selector": metadata.selector(training.name, names.TRAINER),
        "ports": [{"name": "rendezvous", "port": names.PORT_RENDEZVOUS, "targetPort": names.PORT_RENDEZVOUS}],
    }
    return [{**manifest, "spec": spec}]


def _stateful_set(context: Context, workload: Workload) -> Object:
    training = context.training
    name = names.component(training.name, workload.component)
    spec: Object = {
        "serviceName": names.ranks(training.name),
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "revisionHistoryLimit": 2,
        "selector": {"matchLabels": metadata.selector(training.name, workload.component)},
        "template": template(context, workload),
        **replicas(context, workload),
    }
    return {**metadata.workload(training, kinds.STATEFUL_SET, name, workload.component), "spec": spec}


def _group(context: Context, workload: Workload) -> Object:
    """One group of `nodes` pods; losing one starts all of them again, which is what collective training needs."""
    training = context.training
    size = replicas(context, workload)["replicas"]
    spec: Object = {
        "replicas": 1 if size else 0,
        "startupPolicy": "LeaderCreated",
        "leaderWorkerTemplate": {
            "size": workload.replicas,
            "restartPolicy": "RecreateGroupOnPodRestart",
            "workerTemplate": template(context, workload),
        },
    }
    manifest = metadata.workload(training, kinds.LEADER_WORKER_SET, names.ranks(training.name), workload.component)
    return {**manifest, "spec": spec}
