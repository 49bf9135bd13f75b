"""One OpenClawTraining as the operator sees it: identity, generation and the parsed spec.

Parsing is where an object admitted by an older CRD shows its mistakes; nothing here talks to the API server.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from openclaw_core import names
from openclaw_core.config.spec import TrainingSpec


class InvalidSpecError(ValueError):
    """The spec breaks the schema or a cross-field rule; the message names field and value."""


@dataclass(frozen=True)
class Key:
    """Where a training is. Its state in memory is kept by uid, since a name can be used again."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Training:
    """Identity and spec of one training."""

    namespace: str
    name: str
    uid: str
    generation: int
    spec: TrainingSpec
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


def parse(body: Mapping[str, Any]) -> Training:
    """API object → Training. InvalidSpecError lists every fault as `spec.a.b: message`."""
    metadata = body["metadata"]
    try:
        spec = TrainingSpec.model_validate(body.get("spec") or {})
    except ValidationError as error:
        raise InvalidSpecError("; ".join(_fault(dict(item)) for item in error.errors())) from error
    return Training(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        generation=metadata.get("generation", 0),
        spec=spec,
        labels=metadata.get("labels") or {},
    )


def managed_elsewhere(body: Mapping[str, Any]) -> bool:
    """Whether `spec.managedBy` names another controller: then nothing of the training is ours to touch."""
    return (body.get("spec") or {}).get("managedBy") not in (None, names.THIS_OPERATOR)


def _fault(item: dict[str, Any]) -> str:
    path = ".".join(str(part) for part in ("spec", *item["loc"]))
    message = str(item["msg"]).removeprefix("Value error, ")
    return message if not item["loc"] else f"{path}: {message} (is {item['input']!r})"
