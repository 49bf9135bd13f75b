"""The CRD's rules without a cluster: every fault of a resource with its file and line."""

import json
import re
from datetime import date
from typing import Any, NamedTuple

from pydantic import ValidationError

from openclaw_cli.located import Located, Path_
from openclaw_core import names
from openclaw_core.config.spec import TrainingSpec


class Fault(NamedTuple):
    """What admission would refuse: where, and the field with what is wrong."""

    path: Path_
    text: str


def problems(document: Located, file: str) -> list[str]:
    """Every fault of the resource as `file:line: field: message`; empty for a valid training."""
    return [f"{file}:{document.line(fault.path)}: {fault.text}" for fault in faults(document)]


def faults(document: Located) -> list[Fault]:
    """Every fault of the resource; empty for a valid training."""
    data = document.data
    if not isinstance(data, dict) or data.get("kind") != names.KIND:
        kind = data.get("kind") if isinstance(data, dict) else type(data).__name__
        return [Fault(("kind",), f"kind is {kind!r}, expected {names.KIND}")]
    found = _header(data)
    try:
        # Strict and by the resource's own names, as admission is: "2" is no integer, and pause_timeout_sec no field.
        TrainingSpec.model_validate_json(_as_json(data.get("spec") or {}), strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            path: Path_ = ("spec", *fault["loc"])
            if path == ("spec",) and fault["type"] == "value_error":
                sentences = re.split(r"; (?=spec\.)", _message(dict(fault)))
                found += [_across_fields(sentence, data) for sentence in sentences]
            else:
                found.append(Fault(path, f"{_field(path)}: {_message(dict(fault))}"))
    return found


def _across_fields(sentence: str, data: Any) -> Fault:
    """A rule that spans fields stands at the field its sentence begins with, and shows what the file says there."""
    path: Path_ = tuple(sentence.split(maxsplit=1)[0].rstrip(":").split("."))
    value = data
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    shown = "" if value is None or isinstance(value, dict | list) else f" (is {value!r})"
    return Fault(path, f"{sentence}{shown}")


def _header(data: dict[str, Any]) -> list[Fault]:
    found = []
    if data.get("apiVersion") != names.API_VERSION:
        text = f"apiVersion is {data.get('apiVersion')!r}, expected {names.API_VERSION}"
        found.append(Fault(("apiVersion",), text))
    fault = _name_fault(str((data.get("metadata") or {}).get("name", "")), _nodes(data.get("spec")))
    if fault is not None:
        found.append(Fault(("metadata", "name"), f"metadata.name: {fault}"))
    return found


def _name_fault(name: str, nodes: int) -> str | None:
    if not 0 < len(name) <= names.MAX_TRAINING_NAME:
        return f"{name!r} must have 1 to {names.MAX_TRAINING_NAME} characters, so that Service names fit DNS-63"
    if not re.fullmatch(names.TRAINING_NAME_PATTERN, name):
        return f"{name!r} must be small letters, digits and '-', begin with a letter and not end with '-'"
    limit = names.MAX_TRAINING_NAME_OF_NODES
    if nodes > 1 and len(name) > limit:
        many = f"with spec.policyTraining.nodes {nodes} at most {limit}: take a shorter name"
        return f"{name!r} has {len(name)} characters, but {many}"
    return None


def _nodes(spec: Any) -> int:
    """`spec.policyTraining.nodes`, 1 where it is not given or no number."""
    training = spec.get("policyTraining") if isinstance(spec, dict) else None
    nodes = training.get("nodes") if isinstance(training, dict) else None
    return nodes if isinstance(nodes, int) else 1


def _as_json(spec: Any) -> str:
    """What kubectl sends of a YAML file: its timestamps are strings."""

    def text(value: object) -> str:
        return value.isoformat() if isinstance(value, date) else str(value)

    return json.dumps(spec, default=text)


def _field(path: Path_) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def _message(fault: dict[str, Any]) -> str:
    if fault["type"] == "extra_forbidden":
        return "unknown field; remove it or correct its name"
    if fault["type"] in {"missing", "value_error"}:
        return str(fault["msg"]).removeprefix("Value error, ")
    return f"is {fault['input']!r}: {fault['msg']}"
