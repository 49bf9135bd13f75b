"""The generated CRD: fresh, structural, small, described; its defaults are the models'."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openclaw_core import crd, generate, names
from openclaw_core.config.rules import CEL_RULES
from openclaw_core.config.spec import TrainingSpec
from openclaw_core.status import ConditionType

ROOT = Path(__file__).resolve().parents[3]
MINIMAL: dict[str, Any] = {"model": {"path": "base"}, "api": {"baseUrl": "http://j.test/v1"}, "judge": {"model": "m"}}


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for key, child in (schema.get("properties") or {}).items():
        yield from nodes(child, f"{path}.{key}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key], f"{path}[]")


def defaulted(value: Any, schema: dict[str, Any]) -> Any:
    """Structural defaulting as the API server does it: a missing field gets its default, then its own fields theirs."""
    if not isinstance(value, dict):
        return value
    result = dict(value)
    for key, child in (schema.get("properties") or {}).items():
        if key not in result and "default" in child:
            result[key] = copy.deepcopy(child["default"])
        if key in result:
            result[key] = defaulted(result[key], child)
    return result


def test_generated_files_are_fresh() -> None:
    assert generate.stale(ROOT) == [], "run `make generate`"


def test_crd_is_far_below_the_size_limit_of_an_annotation() -> None:
    assert len(json.dumps(crd.manifest(), separators=(",", ":"))) < 150_000


def test_schema_is_structural() -> None:
    for path, schema in nodes(crd.root_schema()):
        assert not {"$ref", "$defs", "title", "nullable", "oneOf", "allOf"} & schema.keys(), path
        assert "type" in schema or schema.get("x-kubernetes-int-or-string"), path
        if "anyOf" in schema:
            assert schema["x-kubernetes-int-or-string"] is True, path
        if "additionalProperties" in schema:
            assert "properties" not in schema, path


def test_every_field_of_the_spec_is_described() -> None:
    silent = [path for path, schema in nodes(crd.spec_schema()) if "[]" not in path and not schema.get("description")]
    assert silent == []


def test_every_number_list_and_map_is_bounded() -> None:
    for path, schema in nodes(crd.spec_schema()):
        if schema.get("type") in ("integer", "number") and "[]" not in path:
            assert {"minimum", "maximum"} <= schema.keys(), path
        if schema.get("type") == "array":
            assert "maxItems" in schema, path
        if "additionalProperties" in schema:
            assert "maxProperties" in schema, path


@pytest.mark.parametrize(
    "spec",
    [
        MINIMAL,
        MINIMAL
        | {"policyTraining": {"lora": {}}, "logging": {"wandb": {"apiKeySecretRef": {"name": "a", "key": "b"}}}},
        MINIMAL | {"policyServing": {"gateway": {}, "resources": {"limits": {"cpu": 1}}}},
    ],
)
def test_defaults_filled_in_by_the_schema_equal_the_models(spec: dict[str, Any]) -> None:
    admitted = defaulted(spec, crd.spec_schema())
    assert TrainingSpec.model_validate(admitted) == TrainingSpec.model_validate(spec)
    written = TrainingSpec.model_validate(spec).model_dump(mode="json", by_alias=True, exclude_none=True)
    assert admitted == written


def test_rules_between_sections_and_immutables_are_in_the_schema() -> None:
    spec = crd.root_schema()["properties"]["spec"]
    assert [rule["rule"] for rule in spec["x-kubernetes-validations"][:-1]] == [rule.rule for rule in CEL_RULES]
    frozen = {
        rule["message"].split(" cannot")[0]
        for _, schema in nodes(spec)
        for rule in schema.get("x-kubernetes-validations", [])
        if "oldSelf" in rule["rule"]
    }
    assert frozen == {
        "spec.managedBy",
        "spec.model.path",
        "spec.model.huggingFace.repo",
        "spec.model.huggingFace.revision",
        "spec.queue.store",
        "spec.storage.weights.storageClassName",
        "spec.storage.weights.existingClaim",
        "spec.storage.weights.size",
        "spec.storage.weights.accessModes",
        "spec.storage.experience.storageClassName",
        "spec.storage.experience.existingClaim",
        "spec.storage.experience.size",
    }


def test_columns_subresources_and_names_are_those_of_the_design() -> None:
    spec = crd.manifest()["spec"]
    (version,) = spec["versions"]
    assert (spec["names"]["shortNames"], spec["names"]["categories"]) == ([names.SHORT_NAME], ["all"])
    columns = [(column["name"], column.get("priority", 0)) for column in version["additionalPrinterColumns"]]
    narrow = ["Phase", "Ready", "Serving", "Judges", "Trainer", "Weights", "Step", "Paused", "Age"]
    assert [name for name, priority in columns if priority == 0] == narrow
    assert [name for name, priority in columns if priority == 1] == ["Reward", "Drift", "Model", "Message"]
    assert version["subresources"]["scale"]["specReplicasPath"] == ".spec.policyServing.replicas"
    assert "status" in version["subresources"]


def test_columns_read_fields_the_status_has() -> None:
    status = crd.root_schema()["properties"]["status"]
    for column in crd.manifest()["spec"]["versions"][0]["additionalPrinterColumns"]:
        path = column["jsonPath"]
        if path.startswith(".status.") and "[" not in path:
            schema = status
            for key in path.removeprefix(".status.").split("."):
                schema = schema["properties"][key]
        elif "conditions" in path:
            assert path.split('"')[1] in set(ConditionType)
