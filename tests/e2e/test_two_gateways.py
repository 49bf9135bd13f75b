"""Two gateways share one store in PostgreSQL: both answer, one may die, and the accounts hold. Two minutes."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from openclaw_cluster import addresses
from openclaw_core import kube, names
from tests.e2e.running_training import GATEWAY_PORT, Pod, RunningTraining, running_training, until
from tests.fakes import postgres

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
SECRET = "experience-database"
_ANSWERS = f"""
import urllib.request as u
lines = u.urlopen("http://127.0.0.1:{GATEWAY_PORT}/metrics", timeout=10).read().decode().splitlines()
print(sum(float(line.split()[-1]) for line in lines if line.startswith("openclawrl_gateway_answers_total")))
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def training() -> AsyncIterator[RunningTraining]:
    """PostgreSQL runs on this machine, at the address of the cluster's node."""
    with postgres.running(addresses.NODE_IP, addresses.POD_CIDR) as server:
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": SECRET},
            "stringData": {"url": server.url_for_pods()},
        }
        queue = {"store": "postgres", "postgres": {"urlSecretRef": {"name": SECRET, "key": "url"}}}
        gateways = {"gateway": {"replicas": 2}}
        async with running_training(
            "openclaw-two-gateways", also=[secret], queue=queue, policyServing=gateways
        ) as found:
            yield found


async def _answers(training: RunningTraining, pod: Pod) -> float:
    return float(await training.python_at(pod, _ANSWERS))


async def test_both_answer_and_one_may_die(training: RunningTraining) -> None:
    accounts, gateways = await training.stats(), await training.pods(names.GATEWAY)
    assert [pod.ready for pod in gateways] == [True, True]
    assert all([await _answers(training, pod) > 0 for pod in gateways]), "one of the gateways was never asked"
    await training.objects.delete(kube.path("v1", "pods", training.namespace, gateways[0].name), uid=gateways[0].uid)

    async def missing() -> str | None:
        now = await training.pods(names.GATEWAY)
        both = len(now) == 2 and all(pod.ready for pod in now) and gateways[0].uid not in {pod.uid for pod in now}
        return None if both else str(now)

    await until("two gateways again", 120, missing)
    await training.goes_on()
    await training.accounts_hold(accounts)
    assert training.history.faults() == []
