"""A new version is tried on one of two real engines: sessions stick to theirs, and it is promoted. Four minutes."""

import asyncio
from typing import Any

import aiohttp
import pytest

from openclaw_core import names
from openclaw_core.leases import Canary
from tests.e2e.running_training import GATEWAY_PORT, RunningTraining, running_training, until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1500)]
SESSIONS = 16
ROLLOUT = {"canaryReplicas": 1, "minTurns": 10, "maxDurationSec": 300, "maxScoreDrop": 1.5}
"""So lenient that a few judged turns prove a version good enough."""
ROOM = {"maxHeadOffPolicyness": 15, "staleFilterSteps": 15}
"""Turns wait for the canary's end; the trainer goes on meanwhile."""


async def versions_loaded(training: RunningTraining) -> list[str]:
    """What SGLang itself says, by engine."""
    return [await training.version_loaded(pod) for pod in await training.pods(names.ENGINE)]


async def canary_serves(training: RunningTraining) -> Canary:
    """The canary, once one engine has it and the other the stable version."""
    found: list[Canary] = []

    async def missing() -> str | None:
        state = training.history.newest
        if state.canary is None or state.canary.promoted:
            return f"no canary in {state}"
        loaded = await versions_loaded(training)
        if sorted(loaded) != sorted([state.canary.version, str(state.serving_version)]):
            return f"loaded {loaded}, {state}"
        found.append(state.canary)
        return None

    await until("a canary on one of two engines", 240, missing)
    return found[-1]


async def answered_by(training: RunningTraining, session: str) -> str:
    """Version that answers a session's side request, by the engine's own word."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": f"I am {session}."}], "max_tokens": 4}
    headers = {"X-Turn-Type": "side", "X-Session-Id": session}
    limit = aiohttp.ClientTimeout(total=60)
    url = f"{training.gateway.url(GATEWAY_PORT)}/v1/chat/completions"
    async with training.http.post(url, json=body, headers=headers, timeout=limit) as response:
        assert response.status == 200, await response.text()
        reply: dict[str, Any] = await response.json()
    return str(reply["metadata"]["weight_version"])


async def sessions_stick(training: RunningTraining) -> Canary:
    """Each session is answered by the side it belongs to, twice; once more with the next canary if this one ended."""
    for _ in range(5):
        canary, stable = await canary_serves(training), training.history.newest.serving_version
        sessions = [f"visitor-{number}" for number in range(SESSIONS)]
        seen = [await asyncio.gather(*(answered_by(training, one) for one in sessions)) for _ in range(2)]
        if training.history.newest.canary == canary:
            wanted = [canary.version if canary.takes(one) else stable for one in sessions]
            assert seen == [wanted, wanted]
            assert set(wanted) == {canary.version, stable}
            return canary
    raise AssertionError("every canary ended while sixteen sessions asked twice")


async def test_version_is_tried_on_one_of_two_real_engines_and_promoted() -> None:
    serving = {"replicas": 2, "rollout": ROLLOUT}
    async with running_training(
        "openclaw-rollout", trains=False, policyServing=serving, policyTraining=ROOM
    ) as training:
        accounts = await training.stats()
        canary = await sessions_stick(training)

        async def missing() -> str | None:
            served = [str(version) for version in training.history.served]
            return None if canary.version in served else f"served so far {served}, {training.history.newest}"

        await until(f"the promotion of {canary.version}", ROLLOUT["maxDurationSec"], missing)
        assert canary.version not in training.history.newest.bad_versions
        assert len(training.history.holds) >= 1, "the other engine got it in a hold"
        await training.accounts_hold(accounts)
        assert training.history.faults() == []
