"""Strategic merge of a user's `podTemplate` into the pod template we built.

As `kubectl patch --type=strategic` merges a pod: objects key by key, a null removes the key, lists by the merge key of
their field (containers by `name`, ports by `containerPort`, …) or, where Kubernetes has none (tolerations, command),
whole. An entry or object with `$patch: replace` or `$patch: delete` says so itself. A volume given another source
loses the one it had. The schema stays Kubernetes' own: what it does not know it refuses when the child is applied.
"""

from typing import Any

_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}
"""Fields of a pod whose lists merge, by the key of an entry; every other list is replaced."""

_DIRECTIVE = "$patch"


def merged(base: Any, patch: Any, field: str = "") -> Any:
    """`base` with `patch` laid over it; neither is changed. `field` is the key both were found under."""
    if isinstance(base, dict) and isinstance(patch, dict):
        return _merged_object(base, patch)
    if isinstance(patch, list):
        key = _MERGE_KEYS.get(field)
        return _merged_list(base if isinstance(base, list) else [], patch, field, key) if key else patch
    return _merged_object({}, patch) if isinstance(patch, dict) else patch


def _merged_object(base: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    overlay = {key: value for key, value in patch.items() if key != _DIRECTIVE}
    if patch.get(_DIRECTIVE) == "delete":
        return {}
    kept = {} if patch.get(_DIRECTIVE) == "replace" else base
    keys = [*kept, *(key for key in overlay if key not in kept)]
    result = {key: merged(kept.get(key), overlay[key], key) if key in overlay else kept[key] for key in keys}
    return {key: value for key, value in result.items() if value is not None or key not in overlay}


def _merged_list(base: list[Any], patch: list[Any], field: str, key: str) -> list[Any]:
    """Base entries stay where they are, new ones follow. Entries without the merge key make it a replacement."""
    overlay = {entry.get(key): entry for entry in patch if isinstance(entry, dict)}
    if any(entry.get(_DIRECTIVE) == "replace" and key not in entry for entry in overlay.values()):
        return [entry for entry in patch if key in entry]
    if None in overlay or len(overlay) < len(patch):
        return patch
    known = {entry.get(key) for entry in base}
    kept = [_merged_entry(entry, overlay.get(entry.get(key)), field) for entry in base]
    new = [merged(None, entry) for name, entry in overlay.items() if name not in known]
    return [entry for entry in (*kept, *new) if entry]


def _merged_entry(entry: dict[str, Any], patch: dict[str, Any] | None, field: str) -> dict[str, Any]:
    if patch is None:
        return entry
    if field == "volumes" and not patch.keys() & (entry.keys() - {"name"}):
        return patch
    return _merged_object(entry, patch)
