"""What is kept of a live object: enough to decide, not the object. Pure.

A thousand trainings have some thirty thousand objects. Of most of them only identity and a fingerprint of what an apply
could put back matter; of what makes pods also its count and status; of pods their state; of Leases all.
"""

import hashlib
import json
import sys
from typing import Any

from openclaw_core import names
from openclaw_operator import kinds

Object = dict[str, Any]
_FINGERPRINT, _AUTOSCALED = "fingerprint", "autoscaled"
_METADATA = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")
_LABELS = (names.LABEL_COMPONENT, kinds.LABEL_POD_INDEX)
_POD_STATUS = ("phase", "podIP", "conditions", "containerStatuses", "initContainerStatuses")


def kept(kind: str, live: Object) -> Object:
    """The part of an object that is remembered, shaped like the object."""
    metadata = _kept_metadata(live["metadata"])
    if kind == kinds.POD.kind:
        return _kept_pod(live, metadata)
    found: Object = {"metadata": metadata, _FINGERPRINT: fingerprint(kind, live)}
    if kind in kinds.CONTENT_OF_OTHERS:
        metadata["annotations"] = live["metadata"].get("annotations") or {}
        found["spec"] = live.get("spec") or {}
    elif kind in kinds.WORKLOADS:
        spec = live.get("spec") or {}
        found["spec"] = {key: spec[key] for key in ("replicas", "selector", "progressDeadlineSeconds") if key in spec}
        found |= {"status": live.get("status") or {}, _AUTOSCALED: autoscaled(live)}
    return found


def _kept_metadata(metadata: Object) -> Object:
    """Words that many objects have in common are kept once."""
    found: Object = {key: metadata[key] for key in _METADATA if key in metadata}
    found["namespace"] = sys.intern(found.get("namespace") or "")
    labels = metadata.get("labels") or {}
    found["labels"] = {key: sys.intern(labels[key]) for key in _LABELS if key in labels}
    found["ownerReferences"] = [{"uid": sys.intern(owner["uid"])} for owner in metadata.get("ownerReferences") or []]
    return found


def _kept_pod(pod: Object, metadata: Object) -> Object:
    status, spec = pod.get("status") or {}, pod.get("spec") or {}
    ours = (names.ANNOTATION_REVISION, names.ANNOTATION_SECRETS)
    notes = pod["metadata"].get("annotations") or {}
    metadata["annotations"] = {key: notes[key] for key in ours if key in notes}
    found: Object = {"metadata": metadata, "status": {key: status[key] for key in _POD_STATUS if key in status}}
    return found | ({"spec": {"schedulingGates": spec["schedulingGates"]}} if "schedulingGates" in spec else {})


def without_managers(body: Object) -> Object:
    """An object without its managedFields, which are most of it and nobody's business here."""
    metadata = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    return {**body, "metadata": metadata}


def newer(found: Object, known: Object) -> bool:
    """Whether `found` is later than `known`. The API server counts all its objects' resourceVersions as one."""
    return version(found) > version(known)


def version(item: Object) -> int:
    """resourceVersion as a number; 0 of what has none."""
    return int(item["metadata"].get("resourceVersion") or 0)


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def fingerprint(kind: str, live: Object) -> str:
    """Hash of what an apply could put back. Status is nobody's drift; annotations of a child are all foreign."""
    if _FINGERPRINT in live:
        known: str = live[_FINGERPRINT]
        return known
    metadata = live["metadata"]
    part: Object = {key: metadata.get(key) for key in ("uid", "labels", "ownerReferences")}
    if kind in kinds.CONTENT_OF_OTHERS:
        part["hold"] = (metadata.get("annotations") or {}).get(names.ANNOTATION_HOLD)
    else:
        outside = ("metadata", "status", "kind", "apiVersion")
        part["content"] = {key: value for key, value in live.items() if key not in outside}
    return digest(part)


def autoscaled(found: Object) -> bool:
    """Whether an autoscaler wrote `replicas` last, through the scale subresource."""
    if _AUTOSCALED in found:
        return bool(found[_AUTOSCALED])
    return any(
        entry.get("subresource") == "scale"
        and entry.get("manager") == "kube-controller-manager"
        and "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {})
        for entry in found["metadata"].get("managedFields") or []
    )
