"""The CRD's rules without a cluster: every fault of a resource with its file and line."""

from typing import Any

from pydantic import ValidationError

from openclaw_cli.located import Located, Path_
from openclaw_core import names
from openclaw_core.config.spec import TrainingSpec


def problems(document: Located, file: str) -> list[str]:
    """What admission would refuse, as `file:line: field: message`; empty for a valid training."""
    data = document.data
    if not isinstance(data, dict) or data.get("kind") != names.KIND:
        kind = data.get("kind") if isinstance(data, dict) else type(data).__name__
        return [f"{file}:{document.line(('kind',))}: kind is {kind!r}, expected {names.KIND}"]
    found = _header(document, file)
    try:
        TrainingSpec.model_validate(data.get("spec") or {})
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            path: Path_ = ("spec", *fault["loc"])
            found.append(f"{file}:{document.line(path)}: {_field(path)}: {_message(dict(fault))}")
    return found


def _header(document: Located, file: str) -> list[str]:
    data, found = document.data, []
    if data.get("apiVersion") != names.API_VERSION:
        line = document.line(("apiVersion",))
        found.append(f"{file}:{line}: apiVersion is {data.get('apiVersion')!r}, expected {names.API_VERSION}")
    name = (data.get("metadata") or {}).get("name", "")
    if not 0 < len(str(name)) <= names.MAX_TRAINING_NAME:
        line = document.line(("metadata", "name"))
        limit = f"1 to {names.MAX_TRAINING_NAME} characters"
        found.append(f"{file}:{line}: metadata.name: {name!r} must have {limit}, so that Service names fit DNS-63")
    return found


def _field(path: Path_) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def _message(fault: dict[str, Any]) -> str:
    if fault["type"] == "extra_forbidden":
        return "unknown field; remove it or correct its name"
    if fault["type"] in {"missing", "value_error"}:
        return str(fault["msg"]).removeprefix("Value error, ")
    return f"is {fault['input']!r}: {fault['msg']}"
