"""The CustomResourceDefinition, generated from the pydantic models.

Pure: models in, manifest out. `structural` turns pydantic's JSON schema into what the API server accepts: references
inlined, `X | None` simply optional (an explicit null is refused, an absent key stays absent), unknown keys left to the
API server's own strictness, and a section's default `{}` because the server fills the fields of a defaulted object
itself. Cross-field rules are CEL: those of `config.rules`, the immutables, and the limit on the name.
"""

from typing import Any

from openclaw_core import names
from openclaw_core.config.rules import CEL_RULES, CelRule
from openclaw_core.config.spec import TrainingSpec
from openclaw_core.status import ConditionType, TrainingStatus

Schema = dict[str, Any]

_DROPPED = frozenset({"title", "additionalProperties", "$defs"})
SELECTABLE = (".spec.suspend", ".spec.managedBy", ".spec.model.servedName", ".status.phase")
"""What `kubectl get oct --field-selector` knows."""
_MAX_QUANTITIES = 16
_MAX_MAP_VALUES = 64


def manifest() -> dict[str, Any]:
    """The whole CustomResourceDefinition."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names.PLURAL}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.SINGULAR,
                "shortNames": [names.SHORT_NAME],
                "categories": ["all"],
            },
            "versions": [_version()],
        },
    }


def _version() -> dict[str, Any]:
    return {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": root_schema()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.policyServing.replicas",
                "statusReplicasPath": ".status.serving.replicas",
                "labelSelectorPath": ".status.serving.selector",
            },
        },
        "selectableFields": [{"jsonPath": path} for path in SELECTABLE],
        "additionalPrinterColumns": _printer_columns(),
    }


def root_schema() -> Schema:
    """Schema of the whole object: spec with its rules, status, and the rule on the name."""
    spec = spec_schema()
    spec["x-kubernetes-validations"] = [
        *(_validation(rule) for rule in CEL_RULES),
        _unchanged("spec", "managedBy"),
    ]
    return {
        "type": "object",
        "description": "One online-RL training: policy serving, environment, reward judging and policy training.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": _name_schema()}},
            "spec": spec,
            "status": structural(TrainingStatus.model_json_schema(by_alias=True), defaults=False),
        },
        "x-kubernetes-validations": [_validation(_NAME_RULE)],
    }


_LIMIT = names.MAX_TRAINING_NAME_OF_NODES
_NAME_RULE = CelRule(
    f"self.spec.policyTraining.nodes <= 1 || size(self.metadata.name) <= {_LIMIT}",
    f"metadata.name may have {_LIMIT} characters when spec.policyTraining.nodes is above 1",
    f"'metadata.name has %d characters, but with spec.policyTraining.nodes %d at most {_LIMIT}: take a shorter name'"
    ".format([size(self.metadata.name), self.spec.policyTraining.nodes])",
)


def _name_schema() -> Schema:
    """Services are named after the training, so a name that would break theirs is refused here."""
    return {"type": "string", "maxLength": names.MAX_TRAINING_NAME, "pattern": names.TRAINING_NAME_PATTERN}


def spec_schema() -> Schema:
    """Schema of `spec` with its immutables, without the cross-section rules."""
    spec = structural(TrainingSpec.model_json_schema(by_alias=True), defaults=True)
    sections = spec["properties"]
    sections["model"]["x-kubernetes-validations"] = [
        _unchanged("spec.model", "path"),
        _unchanged("spec.model", "huggingFace", "repo"),
        _unchanged("spec.model", "huggingFace", "revision"),
    ]
    sections["queue"]["x-kubernetes-validations"] = [_unchanged("spec.queue", "store")]
    for volume in ("weights", "experience"):
        schema = sections["storage"]["properties"][volume]
        where = f"spec.storage.{volume}"
        schema["x-kubernetes-validations"] = [
            _unchanged(where, "storageClassName"),
            _unchanged(where, "existingClaim"),
            _validation(
                CelRule(
                    "!has(self.size) || !has(oldSelf.size) || "
                    "quantity(self.size).compareTo(quantity(oldSelf.size)) >= 0",
                    f"{where}.size cannot shrink: a claim only grows",
                )
            ),
        ]
    weights = sections["storage"]["properties"]["weights"]
    weights["x-kubernetes-validations"].append(_unchanged("spec.storage.weights", "accessModes"))
    return spec


def structural(schema: Schema, *, defaults: bool) -> Schema:
    """Pydantic's JSON schema → structural schema. `defaults` False leaves every default out (status)."""
    return _convert(schema, schema.get("$defs", {}), defaults)


def _convert(node: Schema, definitions: dict[str, Schema], defaults: bool) -> Schema:
    if "$ref" in node:
        node = _inline(node, definitions)
    if "anyOf" in node:
        return _convert_union(node, definitions, defaults)
    result = {key: value for key, value in node.items() if key not in _DROPPED}
    if not defaults or result.get("default", ...) is None:
        result.pop("default", None)
    if "const" in result:
        result["enum"] = [result.pop("const")]
    if "properties" in node:
        result["properties"] = {
            key: _convert(value, definitions, defaults) for key, value in node["properties"].items()
        }
    if isinstance(node.get("additionalProperties"), dict):
        result["additionalProperties"] = _convert(node["additionalProperties"], definitions, defaults)
        quantities = "x-kubernetes-int-or-string" in result["additionalProperties"]
        result["maxProperties"] = _MAX_QUANTITIES if quantities else _MAX_MAP_VALUES
    if "items" in node:
        result["items"] = _convert(node["items"], definitions, defaults)
    if result.get("type") == "integer":
        result["format"] = "int64"
    return result


def _inline(node: Schema, definitions: dict[str, Schema]) -> Schema:
    """A reference with its siblings: the field's own description wins; a section's default is the empty object."""
    own = {key: value for key, value in node.items() if key != "$ref"}
    if isinstance(own.get("default"), dict):
        own["default"] = {}
    return {**definitions[node["$ref"].rsplit("/", 1)[-1]], **own}


def _convert_union(node: Schema, definitions: dict[str, Schema], defaults: bool) -> Schema:
    outer = {key: value for key, value in node.items() if key != "anyOf"}
    variants = [variant for variant in node["anyOf"] if variant.get("type") != "null"]
    if [variant.get("type") for variant in variants] == ["integer", "string"]:
        kept = {key: value for key, value in outer.items() if key not in _DROPPED}
        return {**kept, "anyOf": variants, "x-kubernetes-int-or-string": True}
    if len(variants) != 1:
        raise ValueError(f"a structural schema has no union of {variants}")
    return _convert({**variants[0], **outer}, definitions, defaults)


def _validation(rule: CelRule) -> dict[str, str]:
    entry = {"rule": rule.rule, "message": rule.message}
    if rule.message_expression:
        entry["messageExpression"] = rule.message_expression
    return entry


def _unchanged(where: str, *keys: str) -> dict[str, str]:
    """A transition rule: the field was absent and stays absent, or keeps its value."""
    parents = [".".join(keys[: depth + 1]) for depth in range(len(keys))]
    field = parents[-1]
    present, was = (" && ".join(f"has({side}.{path})" for path in parents) for side in ("self", "oldSelf"))
    rule = f"({present}) == ({was}) && (!({present}) || self.{field} == oldSelf.{field})"
    about = f"{where}.{field} cannot be changed; make a new training instead"
    if field == "accessModes":  # a list has no text in CEL
        return _validation(CelRule(rule, about))
    before, after = f"({was}) ? oldSelf.{field} : 'not set'", f"({present}) ? self.{field} : 'not set'"
    sentence = f"{where}.{field} cannot be changed from %s to %s; make a new training instead"
    expression = f"'{sentence}'.format([{before}, {after}])"
    return _validation(CelRule(rule, about, expression))


def _printer_columns() -> list[dict[str, Any]]:
    def column(name: str, path: str, kind: str = "string", *, wide: bool = False, about: str = "") -> dict[str, Any]:
        entry: dict[str, Any] = {"name": name, "type": kind, "jsonPath": path}
        if about:
            entry["description"] = about
        return entry | ({"priority": 1} if wide else {})

    def condition(kind: ConditionType) -> str:
        return f'.status.conditions[?(@.type=="{kind}")].status'

    return [
        column("Phase", ".status.phase"),
        column("Ready", condition(ConditionType.READY)),
        column("Serving", ".status.serving.summary", about="Engine pods ready/desired."),
        column("Judges", ".status.judging.summary", about="Judge pods ready/desired."),
        column("Trainer", ".status.trainer.summary", about="Trainer pods ready/desired."),
        column("Weights", ".status.weights.serving", about="Weight version being served."),
        column("Step", ".status.training.step", "integer", about="Optimizer steps taken."),
        column("Paused", condition(ConditionType.WEIGHT_SYNC_PAUSED), about="Submissions paused for a weight sync."),
        column("Age", ".metadata.creationTimestamp", "date"),
        column("Reward", ".status.training.rewardMean", "number", wide=True, about="Mean reward of the last step."),
        column("Drift", ".status.training.rolloutLogprobAbsDiff", "number", wide=True),
        column("Model", ".spec.model.servedName", wide=True),
        column("Message", ".status.message", wide=True),
    ]
