"""Trainings and live objects for the operator's tests."""

from typing import Any

from openclaw_core import names
from openclaw_operator.builders.workload import Context
from openclaw_operator.images import Images
from openclaw_operator.needs import secret_needs
from openclaw_operator.training import Training, parse

Object = dict[str, Any]
IMAGES = Images({component: f"registry.test/openclaw-{component}:1" for component in names.COMPONENTS})
UID = "7d3c0a5e-0000-4000-8000-000000000001"


def body(name: str = "demo", **spec: Any) -> Object:
    """An OpenClawTraining as the API server returns it; `spec` overrides sections."""
    sections: Object = {
        "model": {"path": "base"},
        "policyServing": {"device": "cpu"},
        "api": {"baseUrl": "http://judge.test/v1", "apiKeySecretRef": {"name": "judge-key", "key": "key"}},
        "judge": {"model": "rule"},
    }
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name, "namespace": "lab", "uid": UID, "generation": 3},
        "spec": sections | spec,
    }


def training(name: str = "demo", **spec: Any) -> Training:
    return parse(body(name, **spec))


def context(of: Training | None = None, **changes: Any) -> Context:
    chosen = of or training()
    return Context(chosen, IMAGES, needs=secret_needs(chosen.spec), **changes)


def pod(
    component: str,
    *,
    index: int = 0,
    revision: str | None = None,
    secrets: str | None = None,
    ready: bool = True,
    **status: Any,
) -> Object:
    """A live pod of a component."""
    notes = {names.ANNOTATION_REVISION: revision, names.ANNOTATION_SECRETS: secrets}
    return {
        "metadata": {
            "name": f"demo-{component}-{index}",
            "uid": f"{component}-{index}",
            "labels": {names.LABEL_TRAINING: "demo", names.LABEL_COMPONENT: component},
            "annotations": {key: value for key, value in notes.items() if value},
        },
        "status": {
            "phase": "Running",
            "podIP": f"10.0.0.{index + 1}",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            **status,
        },
    }
