"""Merge of a user's `podTemplate` into the pod template we built.

The rules of a strategic merge that matter for pods: objects merge key by key, lists whose entries carry a `name` merge
by it (containers, env, volumes, ports), `volumeMounts` by `mountPath`, every other list is replaced.
"""

from typing import Any

_MERGE_KEYS = {"volumeMounts": "mountPath", "hostAliases": "ip", "tolerations": "key"}


def merged(base: Any, patch: Any, field: str = "") -> Any:
    """`base` with `patch` laid over it; neither is changed."""
    if isinstance(base, dict) and isinstance(patch, dict):
        keys = [*base, *(key for key in patch if key not in base)]
        return {key: _merged_key(base, patch, key) for key in keys}
    if isinstance(base, list) and isinstance(patch, list):
        return _merged_list(base, patch, _MERGE_KEYS.get(field, "name"))
    return patch


def _merged_key(base: dict[str, Any], patch: dict[str, Any], key: str) -> Any:
    if key not in patch:
        return base[key]
    return merged(base[key], patch[key], key) if key in base else patch[key]


def _merged_list(base: list[Any], patch: list[Any], key: str) -> list[Any]:
    if not all(isinstance(entry, dict) and key in entry for entry in [*base, *patch]):
        return patch
    overlay = {entry[key]: entry for entry in patch}
    known = {entry[key] for entry in base}
    kept = [merged(entry, overlay[entry[key]]) if entry[key] in overlay else entry for entry in base]
    return [*kept, *(entry for entry in patch if entry[key] not in known)]
