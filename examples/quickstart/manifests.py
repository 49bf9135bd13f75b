"""The quickstart's Kubernetes objects: the files in `kubernetes/` with this run's choices. Pure but for reads."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from openclaw_core import names

FOLDER = Path(__file__).parent / "kubernetes"
SECRET, SECRET_KEY = "judge-api", "api-key"
TRAINING_FILES = {"smollm2": "training.yaml", "tiny": "training-tiny.yaml"}
Manifest = dict[str, Any]


def read(name: str) -> list[Manifest]:
    """Objects of one file."""
    return [document for document in yaml.safe_load_all((FOLDER / name).read_text()) if document]


def namespace(name: str) -> Manifest:
    manifest = read("namespace.yaml")[0]
    manifest["metadata"]["name"] = name
    return manifest


def judge_key(value: str) -> Manifest:
    """The Secret with the judge endpoint's key; goes to the cluster through stdin, never into a file."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET},
        "type": "Opaque",
        "stringData": {SECRET_KEY: value},
    }


def base_model(model: str, images: Mapping[str, str]) -> list[Manifest]:
    """Volume and Job that write `model` as <volume>/base."""
    claim, job = read("base-model.yaml")
    container = job["spec"]["template"]["spec"]["containers"][0]
    container["image"] = images["quickstart"]
    container["env"] = [{"name": "MODEL", "value": model}]
    return [claim, job]


def judge_endpoint(images: Mapping[str, str]) -> list[Manifest]:
    deployment, service = read("judge-endpoint.yaml")
    deployment["spec"]["template"]["spec"]["containers"][0]["image"] = images["environment"]
    return [deployment, service]


def training(
    model: str,
    *,
    reactions: str = "normal",
    learning_rate: float | None = None,
    judge_url: str | None = None,
    judge_model: str | None = None,
    users: bool = True,
) -> Manifest:
    """The OpenClawTraining as the file says, changed only where an option says otherwise.

    `users` False leaves the environment at 0 replicas, so that nothing trains before the first evaluation.
    """
    manifest = copy.deepcopy(read(TRAINING_FILES[model])[0])
    spec = manifest["spec"]
    hosting = spec["environmentHosting"]
    for variable in hosting["env"]:
        if variable["name"] == "OPENCLAW_REACTIONS":
            variable["value"] = reactions
    hosting["replicas"] = 1 if users else 0
    if learning_rate is not None:
        spec["policyTraining"]["learningRate"] = learning_rate
    if judge_url is not None:
        spec["api"]["baseUrl"] = judge_url
    if judge_model is not None:
        spec["judge"]["model"] = judge_model
    return manifest


def served_name(manifest: Manifest) -> str:
    return str(manifest["spec"]["model"]["servedName"])


def task_name(manifest: Manifest) -> str:
    """Name of the users' task in `openclaw_environment.tasks.TASKS`."""
    values = {entry["name"]: entry["value"] for entry in manifest["spec"]["environmentHosting"]["env"]}
    return str(values["OPENCLAW_TASK"]).replace("-", "_")


def component_selector(training_name: str, component: str) -> str:
    return f"{names.LABEL_TRAINING}={training_name},{names.LABEL_COMPONENT}={component}"
