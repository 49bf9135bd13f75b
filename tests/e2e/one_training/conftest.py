"""One running training for the files of this folder, because to bring one up takes two minutes of both cores.

Each test begins with all parts ready, and ends with a loop that goes on.
"""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.e2e.running_training import RunningTraining, running_training


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def training() -> AsyncIterator[RunningTraining]:
    """Its judge gives up after 3 s, so that an endpoint that hangs shows soon."""
    async with running_training("openclaw-faults", rewardJudging={"judgeTimeoutSec": 3}) as found:
        yield found
