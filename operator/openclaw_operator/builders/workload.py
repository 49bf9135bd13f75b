"""The Deployment around one component: what all of them have in common.

Restricted Pod Security, a read-only root with /tmp as HOME, the component's configuration file, its keys by
`secretKeyRef`, and the two annotations that decide when its pods roll: the revision (hash over configuration and pod
template) and the Secrets (hash over uid and resourceVersion of each one used).
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openclaw_core import names
from openclaw_core.config.base import Resources
from openclaw_core.config.components import ComponentConfig
from openclaw_core.leases import SubmissionHold
from openclaw_operator import kinds
from openclaw_operator.builders import metadata
from openclaw_operator.builders.network import Network
from openclaw_operator.builders.pod_template import merged
from openclaw_operator.images import Images
from openclaw_operator.needs import SecretNeed
from openclaw_operator.training import Training

Object = dict[str, Any]
USER_ID = 10001
_PROGRESS_GRACE_SEC = 300
"""Beyond the longest start: for the scheduler and the pull of the image."""


@dataclass(frozen=True)
class Context:
    """What every builder needs beside the training itself."""

    training: Training
    images: Images
    needs: Sequence[SecretNeed] = ()
    secret_hashes: Mapping[str, str] = field(default_factory=dict)
    """By component: hash over uid and resourceVersion of the Secrets it uses; absent when it uses none."""
    scaled_elsewhere: frozenset[str] = frozenset()
    """Components whose Deployment an autoscaler scales: their `replicas` is not ours."""
    hold: SubmissionHold | None = None
    """The admin's hold, if gateways are to know of one."""
    outdated: frozenset[str] = frozenset()
    """Components with pods of an older revision that must all be gone before the new ones come."""
    groups: bool = False
    """Whether the cluster has LeaderWorkerSets."""
    network: Network = field(default_factory=Network)


@dataclass(frozen=True)
class Workload:
    """What is particular to one component."""

    component: str
    replicas: int
    config: ComponentConfig
    resources: Resources
    pod_template: Mapping[str, Any]
    port: int
    """Port of the probes; 0 = none."""
    startup_sec: int
    """How long a start may take before the kubelet restarts the container."""
    ports: Mapping[str, int] = field(default_factory=dict)
    env: Sequence[Object] = ()
    volumes: Sequence[Object] = ()
    mounts: Sequence[Object] = ()
    paths: tuple[str, str] = ("/healthz", "/readyz")
    """Whether it is alive, and whether it is ready."""
    image: str | None = None
    command: Sequence[str] = ()
    recreate: bool = False
    """Never two pods at once, not even for a moment."""
    surge: bool = False
    """The new pod is ready before an old one goes: for pods that cost little and are asked all the time."""
    api_token: bool = False
    grace_sec: int = 30
    settle_sec: int = 0
    """Seconds a pod goes on as before when it is told to end, until its callers have noticed."""


def config_map(context: Context, workload: Workload) -> Object:
    """ConfigMap `<name>-<component>` with the component's `config.json`."""
    name = names.component(context.training.name, workload.component)
    manifest = metadata.child(context.training, "v1", "ConfigMap", name, workload.component)
    return {**manifest, "data": {"config.json": render(workload.config)}}


def render(config: ComponentConfig) -> str:
    return config.model_dump_json(by_alias=True, exclude_none=True)


def deployment(context: Context, workload: Workload) -> Object:
    """Deployment `<name>-<component>`."""
    training = context.training
    name = names.component(training.name, workload.component)
    spec: Object = {
        "selector": {"matchLabels": metadata.selector(training.name, workload.component)},
        "strategy": _strategy(workload),
        "revisionHistoryLimit": 2,
        "progressDeadlineSeconds": workload.startup_sec + _PROGRESS_GRACE_SEC,
        "template": template(context, workload),
        **replicas(context, workload),
    }
    return {**metadata.workload(training, kinds.DEPLOYMENT, name, workload.component), "spec": spec}


def replicas(context: Context, workload: Workload) -> dict[str, int]:
    """`{"replicas": n}`, or nothing where an autoscaler owns it."""
    if context.training.spec.suspend or workload.component in context.outdated:
        return {"replicas": 0}
    return {} if workload.component in context.scaled_elsewhere else {"replicas": workload.replicas}


def _strategy(workload: Workload) -> Object:
    """One pod out at a time and none extra, as a rule: a roll then needs no spare GPU or memory to wait for."""
    if workload.recreate:
        return {"type": "Recreate"}
    surge = 1 if workload.surge else 0
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": 1 - surge}}


def secret_env(env: str, secret: str, key: str) -> Object:
    return {"name": env, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def token_env(training: str, env: str, key: str) -> Object:
    """A generated token of Secret `<name>-internal`."""
    return secret_env(env, names.internal_secret(training), key)


def shared_memory() -> tuple[Object, Object]:
    """Volume and mount of a /dev/shm that is larger than a container's 64 MB."""
    return {"name": "shm", "emptyDir": {"medium": "Memory"}}, {"name": "shm", "mountPath": "/dev/shm"}


def template(context: Context, workload: Workload) -> Object:
    """Pod template, with the two annotations."""
    name, component = context.training.name, workload.component
    base: Object = {
        "metadata": {"labels": metadata.labels(name, component)},
        "spec": {
            "serviceAccountName": names.component(name, component),
            "automountServiceAccountToken": workload.api_token,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": workload.grace_sec,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER_ID,
                "runAsGroup": USER_ID,
                "fsGroup": USER_ID,
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [_container(context, workload)],
            "volumes": [
                {"name": "config", "configMap": {"name": names.component(name, component)}},
                {"name": "tmp", "emptyDir": {}},
                *workload.volumes,
            ],
        },
    }
    # The labels pick the pods; a podTemplate that changed them would lose its own.
    built: Object = merged(merged(base, dict(workload.pod_template)), {"metadata": base["metadata"]})
    return _annotated(built, _revision(built, workload), context.secret_hashes.get(component))


def _container(context: Context, workload: Workload) -> Object:
    container: Object = {
        "name": workload.component,
        "image": workload.image or context.images.of(workload.component),
        "imagePullPolicy": context.images.pull_policy,
        "env": _environment(context, workload),
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/openclaw", "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
            *workload.mounts,
        ],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if workload.settle_sec:
        container["lifecycle"] = {"preStop": {"sleep": {"seconds": workload.settle_sec}}}
    if workload.command:
        container["command"] = list(workload.command)
    if workload.ports:
        container["ports"] = [{"name": key, "containerPort": port} for key, port in workload.ports.items()]
    resources = workload.resources.model_dump(by_alias=True)
    container["resources"] = {key: value for key, value in resources.items() if value}
    return {**container, **_probes(workload)}


def _environment(context: Context, workload: Workload) -> list[Object]:
    keys = [need for need in context.needs if need.component == workload.component and need.env]
    return [
        {"name": "HOME", "value": "/tmp"},
        {"name": names.ENV_POD_NAME, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": names.ENV_POD_UID, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        *workload.env,
        *(secret_env(need.env, need.ref.name, need.ref.key) for need in keys),
    ]


def _probes(workload: Workload) -> Object:
    """Startup is generous: a slow model load is no reason for a restart."""
    if not workload.port:
        return {}
    alive, ready = ({"httpGet": {"path": path, "port": workload.port}} for path in workload.paths)
    return {
        "startupProbe": {**alive, "periodSeconds": 2, "failureThreshold": workload.startup_sec // 2},
        "livenessProbe": {**alive, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6},
        "readinessProbe": {**ready, "periodSeconds": 2, "timeoutSeconds": 2, "failureThreshold": 3},
    }


def _revision(template: Object, workload: Workload) -> str:
    material = json.dumps([template, render(workload.config)], sort_keys=True)
    return hashlib.sha256(material.encode()).hexdigest()[:12]


def _annotated(template: Object, revision: str, secrets: str | None) -> Object:
    notes = {names.ANNOTATION_REVISION: revision} | ({names.ANNOTATION_SECRETS: secrets} if secrets else {})
    marked: Object = merged(template, {"metadata": {"annotations": notes}})
    return marked
