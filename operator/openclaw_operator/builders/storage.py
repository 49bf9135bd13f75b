"""Claims the operator makes; an `existingClaim` is used as it is and never appears here."""

from typing import Any

from openclaw_core import names
from openclaw_core.config.queue_and_storage import Volume
from openclaw_operator.builders import metadata
from openclaw_operator.training import Training

Object = dict[str, Any]


def claims(training: Training) -> list[Object]:
    storage = training.spec.storage
    built = []
    if storage.weights.existing_claim is None:
        name = names.weights_claim(training.name)
        built.append(_claim(training, name, storage.weights, list(storage.weights.access_modes)))
    if storage.experience.existing_claim is None and training.spec.queue.store == "sqlite":
        built.append(_claim(training, names.experience_claim(training.name), storage.experience, ["ReadWriteOnce"]))
    return built


def existing_claims(training: Training) -> list[tuple[str, str]]:
    """(field, claim name) of the claims the admin promised."""
    storage = training.spec.storage
    named = [
        ("spec.storage.weights.existingClaim", storage.weights.existing_claim),
        ("spec.storage.experience.existingClaim", storage.experience.existing_claim),
    ]
    return [(field, claim) for field, claim in named if claim]


def _claim(training: Training, name: str, volume: Volume, access_modes: list[str]) -> Object:
    spec: Object = {"accessModes": access_modes, "resources": {"requests": {"storage": volume.size}}}
    if volume.storage_class_name is not None:
        spec["storageClassName"] = volume.storage_class_name
    manifest = metadata.child(training, "v1", "PersistentVolumeClaim", name, owned=not training.spec.retain_storage)
    return {**manifest, "spec": spec}
