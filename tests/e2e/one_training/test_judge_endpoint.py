"""The judge endpoint refuses the key, is down, or hangs: the training says so in words, and heals by itself.

Each row begins with judges that are ready and ends with a loop that goes on.
"""

import re
import secrets
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from examples.quickstart import manifests
from openclaw_core import kube
from tests.e2e import kills
from tests.e2e.running_training import RunningTraining, until

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

ENDPOINT, ENV_KEY = "judge-endpoint", "OPENCLAW_JUDGE_ENDPOINT_KEY"
HEALED_WITHIN_SEC = 20


async def refuse_the_key(training: RunningTraining) -> None:
    """The endpoint takes another key than the judge's Secret has."""
    await _endpoint_env(training, {"name": ENV_KEY, "value": secrets.token_urlsafe(24)})


async def take_the_key(training: RunningTraining) -> None:
    source = {"secretKeyRef": {"name": manifests.SECRET, "key": manifests.SECRET_KEY}}
    await _endpoint_env(training, {"name": ENV_KEY, "valueFrom": source})


async def go_down(training: RunningTraining) -> None:
    await _scale(training, 0)


async def come_up(training: RunningTraining) -> None:
    await _scale(training, 1)


async def hang(training: RunningTraining) -> None:
    await _signal(training, signal.SIGSTOP)


async def go_on(training: RunningTraining) -> None:
    await _signal(training, signal.SIGCONT)


@dataclass(frozen=True)
class Fault:
    strike: Callable[[RunningTraining], Awaitable[None]]
    mend: Callable[[RunningTraining], Awaitable[None]]
    words: str
    """Regular expression of what the training says."""

    def __str__(self) -> str:
        return self.strike.__name__


FAULTS = (
    Fault(refuse_the_key, take_the_key, "HTTP 401"),
    Fault(go_down, come_up, "Cannot connect to host|no answer within"),
    Fault(hang, go_on, "no answer within"),
)


@pytest.mark.parametrize("fault", FAULTS, ids=str)
async def test_endpoint_that_fails_is_named_and_healed_within_20_seconds(
    training: RunningTraining, fault: Fault
) -> None:
    accounts = await training.stats()
    await fault.strike(training)
    try:
        await until("JudgingReady False", 90, lambda: _not(training, "False", "EndpointFailing"))
        words = rf"the judge endpoint \(spec\.api\.baseUrl\) fails: .*({fault.words})"
        assert re.match(words, (await training.condition("JudgingReady"))["message"])
        warnings = [event["message"] for event in await training.warnings("EndpointFailing")]
        assert any(re.search(fault.words, message) for message in warnings), warnings
    finally:
        await fault.mend(training)
    await _endpoint_answers(training)
    await until("JudgingReady True", HEALED_WITHIN_SEC, lambda: _not(training, "True", "AllPodsReady"))
    await training.goes_on()
    await training.accounts_hold(accounts)


async def _not(training: RunningTraining, status: str, reason: str) -> str | None:
    now = await training.condition("JudgingReady")
    return None if (now["status"], now["reason"]) == (status, reason) else str(now)


async def _endpoint_answers(training: RunningTraining) -> None:
    await training.cluster.run_kubectl(
        "-n", training.namespace, "rollout", "status", f"deployment/{ENDPOINT}", "--timeout=60s"
    )


async def _endpoint_env(training: RunningTraining, variable: dict[str, object]) -> None:
    path = kube.path("apps/v1", "deployments", training.namespace, ENDPOINT)
    deployment = await training.objects.get(path)
    containers = deployment["spec"]["template"]["spec"]["containers"]
    others = [one for one in containers[0]["env"] if one["name"] != variable["name"]]
    containers[0]["env"] = [*others, variable]
    await training.objects.merge_patch(path, {"spec": {"template": {"spec": {"containers": containers}}}})


async def _scale(training: RunningTraining, replicas: int) -> None:
    path = kube.path("apps/v1", "deployments", training.namespace, ENDPOINT)
    await training.objects.merge_patch(path, {"spec": {"replicas": replicas}})


async def _signal(training: RunningTraining, number: signal.Signals) -> None:
    """To the endpoint's process: the container's first, so from the node."""
    selector = f"app={ENDPOINT}"
    listed = await training.objects.list(kube.path("v1", "pods", training.namespace), label_selector=selector)
    (pod,) = [item for item in listed["items"] if "deletionTimestamp" not in item["metadata"]]
    container = pod["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    kills.signal_container(container, number)
