from typing import Any

import pytest

from examples.quickstart import waiting
from examples.quickstart.commands import StepError
from examples.quickstart.console import Clock


def pod(phase: str = "Pending", conditions: list[Any] | None = None, container: Any = None) -> dict[str, Any]:
    containers = [container] if container else []
    return {"status": {"phase": phase, "conditions": conditions or [], "containerStatuses": containers}}


@pytest.mark.parametrize(
    ("found", "cause"),
    [
        (pod("Running", [{"type": "Ready", "status": "True"}]), None),
        (pod("Succeeded"), None),
        (
            pod(conditions=[{"type": "PodScheduled", "status": "False", "message": "0/1 nodes: Insufficient cpu."}]),
            "cannot be scheduled: 0/1 nodes: Insufficient cpu.",
        ),
        (
            pod(container={"state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}}),
            "ImagePullBackOff: not found",
        ),
        (
            pod(
                "Running",
                container={
                    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": {"terminated": {"exitCode": 2}},
                },
            ),
            "CrashLoopBackOff: last exit code 2",
        ),
        (
            pod("Failed", container={"state": {"terminated": {"exitCode": 1, "reason": "Error"}}}),
            "ended with 1 (Error)",
        ),
        (pod("Running", container={"ready": False, "state": {"running": {}}}), "runs, not ready yet"),
        (pod(), "starts"),
    ],
)
def test_pod_cause_says_why_it_is_not_ready(found: dict[str, Any], cause: str | None) -> None:
    assert waiting.pod_cause(found) == cause


async def test_until_gives_up_with_the_last_cause() -> None:
    async def missing() -> str:
        return "engine is unschedulable"

    with pytest.raises(StepError, match=r"the engine: not there after -1 s: engine is unschedulable"):
        await waiting.until(Clock(), "the engine", -1, missing)
