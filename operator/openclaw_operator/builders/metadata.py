"""Name, labels and owner of every child object."""

from typing import Any

from openclaw_core import names
from openclaw_operator.kinds import Kind
from openclaw_operator.training import Training

Object = dict[str, Any]
QUEUE_LABELS = ("kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class")


def selector(training: str, component: str) -> dict[str, str]:
    """Labels that pick the pods of one component."""
    return {names.LABEL_TRAINING: training, names.LABEL_COMPONENT: component}


def labels(training: str, component: str | None = None) -> dict[str, str]:
    own = selector(training, component) if component else {names.LABEL_TRAINING: training}
    return {names.LABEL_MANAGED_BY: names.MANAGED_BY, **own}


def queue(training: Training) -> dict[str, str]:
    """Labels by which Kueue admits pods, as the training carries them."""
    return {key: value for key, value in training.labels.items() if key in QUEUE_LABELS}


def owner(training: Training) -> Object:
    """The owner reference that lets the garbage collector remove the child with its training."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": training.name,
        "uid": training.uid,
        "controller": True,
    }


def child(
    training: Training, api_version: str, kind: str, name: str, component: str | None = None, *, owned: bool = True
) -> Object:
    """`apiVersion`, `kind` and `metadata` of a child; `owned` False leaves it behind when the training goes."""
    metadata: Object = {
        "name": name,
        "namespace": training.namespace,
        "labels": labels(training.name, component),
        "ownerReferences": [owner(training)] if owned else [],
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def workload(training: Training, kind: Kind, name: str, component: str) -> Object:
    """As `child`, for what makes pods: with the labels of the admission queue."""
    manifest = child(training, kind.api_version, kind.kind, name, component)
    manifest["metadata"]["labels"] |= queue(training)
    return manifest
