"""How many requests of stock clients fail over weight syncs of up to two seconds: openai-python, its default retries.

The real gateway process before the fake engine; holds of 0.1 to 2 s are posted to its internal port as the operator
posts them, one after another, while clients ask without a pause. A request fails when the client library raises, its
HTTP library included, whose exceptions it passes on in a stream.
"""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

import httpx2
import openai

from bench.users import Asked, asking
from openclaw_core.wire import Paused
from openclaw_operator.weightsync.model import HOLD_SHARE_LIMIT
from tests.contract.gateway.gateway_process import KEY, GatewayProcess, gateway_process
from tests.fakes.engine import FakeEngine, Knobs

WINDOWS_SEC = (0.1, 0.5, 1.0, 2.0)
CLIENTS = 8


async def measure(rounds: int = 3) -> Asked:
    """`rounds` times every window."""
    asked = Asked()
    with tempfile.TemporaryDirectory() as folder:
        async with (
            FakeEngine(knobs=Knobs(token_delay_sec=0.02)) as engine,
            gateway_process(Path(folder), [engine.url]) as gateway,
            openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEY) as client,
            asking(*(_ask(client, asked, stream=number % 2 == 0) for number in range(CLIENTS))),
        ):
            await _holds(gateway, WINDOWS_SEC * rounds)
    return asked


async def _ask(client: openai.AsyncOpenAI, asked: Asked, *, stream: bool) -> None:
    """One request after another, streamed or whole."""
    while True:
        asked.requests += 1
        try:
            answer = await client.chat.completions.create(
                model="policy",
                messages=[{"role": "user", "content": "hello"}],
                stream=stream,
                extra_headers={"X-Openclaw-No-Train": "1"},
            )
            if isinstance(answer, openai.AsyncStream):
                async for _ in answer:
                    pass
        except (openai.OpenAIError, httpx2.HTTPError) as error:
            asked.failures[type(error).__name__] += 1


async def _holds(gateway: GatewayProcess, windows: Sequence[float]) -> None:
    """As far apart as the operator lets them be."""
    for epoch, seconds in enumerate(windows, start=1):
        await gateway.internal("/internal/paused", Paused(epoch=epoch, lease_sec=30.0))
        await asyncio.sleep(seconds)
        await gateway.internal("/internal/paused", Paused(epoch=epoch, lease_sec=0.0))
        await asyncio.sleep(max(1.0, seconds / HOLD_SHARE_LIMIT - seconds))
