"""What is wrong with a pod, in one fixed reason and one sentence. Pure."""

import re
from dataclasses import dataclass
from typing import Any

from openclaw_core import names
from openclaw_operator.reasons import Reason

Object = dict[str, Any]
_PULL = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_CONFIG = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_SYNCING = re.compile(r"failed to sync (secret|configmap) cache")
"""The kubelet has not seen the object yet and asks again within seconds: the pod starts."""
_LAST_WORDS = 300


@dataclass(frozen=True)
class Cause:
    """Why a pod is not ready. `message` starts with the pod's name."""

    reason: Reason
    message: str


def is_ready(pod: Object) -> bool:
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in pod.get("status", {}).get("conditions") or []
    )


def is_current(pod: Object, revision: str | None, secrets: str | None) -> bool:
    """Whether the pod runs the revision and the Secrets that are planned now."""
    notes = pod["metadata"].get("annotations") or {}
    return notes.get(names.ANNOTATION_REVISION) == revision and notes.get(names.ANNOTATION_SECRETS) == secrets


def cause(pod: Object) -> Cause:
    """The most telling fault of a pod that is not ready; STARTING when nothing is wrong yet."""
    name = pod["metadata"]["name"]
    status = pod.get("status", {})
    for condition in status.get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            text = condition.get("message", "cannot be scheduled")
            if condition.get("reason") == "SchedulingGated":
                gates = ", ".join(gate["name"] for gate in pod.get("spec", {}).get("schedulingGates") or [])
                return Cause(Reason.AWAITING_ADMISSION, f"{name}: waits for its gates: {gates or text}")
            waits = "unbound immediate PersistentVolumeClaims" in text
            return Cause(Reason.VOLUME_PENDING if waits else Reason.UNSCHEDULABLE, f"{name}: {text}")
    states = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    for container in states:
        found = _container_cause(name, container)
        if found is not None:
            return found
    return Cause(Reason.STARTING, f"{name}: starting")


def _container_cause(pod: str, container: Object) -> Cause | None:
    state = container.get("state") or {}
    waiting = state.get("waiting") or {}
    word, text = waiting.get("reason", ""), waiting.get("message", "")
    if word in _PULL:
        return Cause(Reason.IMAGE_PULL_FAILED, f"{pod}: cannot pull {container.get('image')}: {text or word}")
    if word in _CONFIG and _SYNCING.search(text) is None:
        return Cause(Reason.CONTAINER_CONFIG_FAILED, f"{pod}: {text or word}")
    ended = (
        state.get("terminated") or (container.get("lastState") or {}).get("terminated")
        if not container["ready"]
        else None
    )
    if not ended or ended.get("exitCode") == 0:
        return None
    if ended.get("reason") == "OOMKilled":
        return Cause(Reason.OUT_OF_MEMORY, f"{pod}: {container['name']} was killed for memory; raise resources.limits")
    words = last_words(ended.get("message") or "")
    said = f"; its last words: {words}" if words else ""
    count = container.get("restartCount", 0)
    return Cause(
        Reason.CRASH_LOOP, f"{pod}: {container['name']} exits with {ended.get('exitCode')}, {count} restarts{said}"
    )


def last_words(text: str) -> str:
    """The last line that says something: of a Python traceback the error itself, of a log its last entry."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][-_LAST_WORDS:] if lines else ""
