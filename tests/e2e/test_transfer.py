"""The whole loop with versions broadcast by the trainer: engines get them without reading the volume. Two minutes."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from openclaw_core import names
from tests.e2e.running_training import RunningTraining, running_training

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

WEIGHTS = {"weights": {"existingClaim": "quickstart-weights-volume", "transfer": "distributed"}}
LIMIT = 5e-5


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def training() -> AsyncIterator[RunningTraining]:
    async with running_training("openclaw-transfer", storage=WEIGHTS) as found:
        yield found


async def _syncs(training: RunningTraining) -> list[dict[str, object]]:
    """What the sync agent logged of each sync."""
    pod = await training.pod(names.ENGINE)
    text = await training.cluster.run_kubectl("-n", training.namespace, "logs", pod.name, timeout_sec=60)
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("message") == "weight sync ended"]


async def test_versions_come_from_the_trainer_and_their_weights_are_its_own(training: RunningTraining) -> None:
    await training.goes_on(within_sec=150)
    syncs = await _syncs(training)
    assert len(syncs) >= 2 and all(sync["ok"] for sync in syncs)
    # The first may come before the sender is up; then the volume is read.
    assert syncs[-1]["transferred"], syncs
    fresh = [update.logprob_abs_diff_fresh for update in (await training.trainer_state()).updates]
    found = [value for value in fresh if value is not None]
    assert found and max(found) < LIMIT, "what the engine serves is not what the trainer trained"
