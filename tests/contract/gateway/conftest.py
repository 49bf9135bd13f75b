"""The real gateway process before a fake engine, for every file of the suite."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.contract.gateway.gateway_process import GatewayProcess, gateway_process
from tests.fakes.engine import FakeEngine, Json

Said = str | Callable[[Json], str]


@pytest.fixture
def said() -> Said:
    """What the engine answers; files say their own."""
    return "hello"


@pytest.fixture
async def engine(said: Said) -> AsyncIterator[FakeEngine]:
    async with FakeEngine(reply=said) as found:
        yield found


@pytest.fixture
async def gateway(engine: FakeEngine, tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    async with gateway_process(tmp_path, [engine.url]) as found:
        yield found
