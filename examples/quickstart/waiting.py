"""Waiting for the cluster with something to read: what is not there yet, and why, in the pods' own words."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from examples.quickstart.commands import Cluster, StepError
from examples.quickstart.console import Clock

_EVERY_SEC = 2.0
_REPEAT_AFTER_SEC = 15.0


async def until(clock: Clock, what: str, timeout_sec: float, check: Callable[[], Awaitable[str | None]]) -> None:
    """Call `check` until it returns None; anything else is what is still missing, and is shown when it changes.

    StepError with the last word when time is over.
    """
    now = asyncio.get_running_loop().time
    deadline = now() + timeout_sec
    shown, shown_at = "", 0.0
    while True:
        missing = await check()
        if missing is None:
            return
        if now() > deadline:
            raise StepError(f"{what}: not there after {timeout_sec:.0f} s: {missing}")
        if missing != shown or now() - shown_at > _REPEAT_AFTER_SEC:
            clock.say(f"waiting for {what}: {missing}", style="dim")
            shown, shown_at = missing, now()
        await asyncio.sleep(_EVERY_SEC)


async def pods_missing(cluster: Cluster, namespace: str, selector: str = "") -> str:
    """One line about every pod that is not ready; empty when all are."""
    arguments = ["-n", namespace, "pods", *(["-l", selector] if selector else [])]
    pods = (await cluster.get(*arguments)).get("items", [])
    causes = [f"{pod['metadata']['name']} {cause}" for pod in pods if (cause := pod_cause(pod))]
    return "; ".join(causes)


def pod_cause(pod: Mapping[str, Any]) -> str | None:
    """Why a pod is not ready, None when it is (or has done its work)."""
    status = pod.get("status", {})
    if status.get("phase") == "Succeeded":
        return None
    conditions = {condition["type"]: condition for condition in status.get("conditions", [])}
    if conditions.get("Ready", {}).get("status") == "True":
        return None
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return f"cannot be scheduled: {scheduled.get('message', scheduled.get('reason', ''))}"
    for container in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]:
        if cause := _container_cause(container):
            return cause
    return "starts"


def _container_cause(container: Mapping[str, Any]) -> str | None:
    state, last = container.get("state", {}), container.get("lastState", {})
    if waiting := state.get("waiting"):
        ended = last.get("terminated", {})
        words = waiting.get("message") or (f"last exit code {ended['exitCode']}" if ended else "")
        return f"{waiting.get('reason', 'waits')}{': ' + words[:200] if words else ''}"
    if ended := state.get("terminated"):
        return f"ended with {ended.get('exitCode')} ({ended.get('reason', '')})"
    return None if container.get("ready") else "runs, not ready yet"
