"""A whole gateway in this process: real HTTP on loopback, a store in a temporary directory, fake engines behind it."""

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import openai
import uvicorn

from openclaw_core import wire
from openclaw_core.config.components import GatewayConfig, gateway_config
from openclaw_core.config.spec import TrainingSpec
from openclaw_gateway import main, serving
from openclaw_gateway.settings import Settings
from openclaw_gateway.store.stats import difference
from tests.fakes.engine import FakeEngine

TOKEN = "internal-token"
_MEMORY = (
    "/dev/shm" if os.path.isdir("/dev/shm") else None
)  # fsync costs nothing there: tests wait for commits, not for the disk


def config(**sections: Any) -> GatewayConfig:
    """A GatewayConfig from a spec: `policy_training={"rollout_batch_size": 4}` and so on."""
    base = {
        "model": {"path": "base", "served_name": "policy"},
        "api": {"base_url": "http://judge/v1"},
        "judge": {"model": "judge"},
    }
    return gateway_config("t", "ns", TrainingSpec.model_validate(base | sections))


class Running:
    """A gateway and the clients of its two ports."""

    def __init__(self, parts: main.Gateway, url: str, internal_url: str, http: aiohttp.ClientSession) -> None:
        self.parts, self.url, self.internal_url, self.http = parts, url, internal_url, http
        self.clients: list[openai.AsyncOpenAI] = []

    def client(self, *, key: str = "user-key", max_retries: int = 0, **headers: str) -> openai.AsyncOpenAI:
        client = openai.AsyncOpenAI(
            base_url=f"{self.url}/v1",
            api_key=key,
            max_retries=max_retries,
            default_headers=headers,
            http_client=openai.DefaultAsyncHttpxClient(verify=False),  # plain HTTP: loading CAs is most of its cost
        )
        self.clients.append(client)
        return client

    async def chat(self, *messages: str, session: str | None = None, **body: Any) -> dict[str, Any]:
        """Non-stream: user and assistant messages in turn; the reply's JSON. Raises on a refusal."""
        status, reply = await self.post(conversation(*messages), session=session, **body)
        assert status == 200, reply
        return reply

    async def post(
        self, messages: Sequence[dict[str, Any]], *, session: str | None = None, headers: Any = None, **body: Any
    ) -> tuple[int, dict[str, Any]]:
        sent = {"Authorization": "Bearer user-key"} | ({"X-Session-Id": session} if session else {}) | (headers or {})
        async with self.http.post(
            f"{self.url}/v1/chat/completions", json={"messages": list(messages)} | body, headers=sent
        ) as response:
            return response.status, await response.json()

    async def internal(self, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        method = "GET" if body is None else "POST"
        sent = body.model_dump() if isinstance(body, wire.Message) else body
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with self.http.request(method, f"{self.internal_url}{path}", json=sent, headers=headers) as response:
            return response.status, await response.json()

    async def stats(self) -> wire.Stats:
        """The store's numbers; the identity must hold whenever anybody looks."""
        _, body = await self.internal("/internal/stats")
        stats = wire.Stats.model_validate(body)
        assert difference(stats) == (0, 0), stats
        return stats

    async def judge(self, score: int = 1, most: int = 100) -> list[wire.JudgeTurn]:
        """Score every turn that waits for a judge."""
        request = wire.LeaseTurns(worker="w", max_turns=most, lease_sec=60)
        _, body = await self.internal("/internal/turns/lease", request)
        turns = wire.LeasedTurns.model_validate(body).turns
        for turn in turns:
            await self.internal(
                "/internal/turns/score", wire.ScoreTurn(id=turn.id, lease=turn.lease, score=score, votes=[score])
            )
        return turns

    async def lease(self, batch: int, *, epoch: int = 1, **fields: Any) -> wire.LeasedSamples:
        request = wire.LeaseSamples(
            trainer_epoch=epoch, batch=batch, **{"min_batch": batch, "batch_wait_sec": 300, "lease_sec": 60} | fields
        )
        _, body = await self.internal("/internal/samples/lease", request)
        return wire.LeasedSamples.model_validate(body)


def conversation(*texts: str) -> list[dict[str, Any]]:
    """User and assistant in turn."""
    return [{"role": ("user", "assistant")[index % 2], "content": text} for index, text in enumerate(texts)]


@contextlib.asynccontextmanager
async def running(
    *engines: FakeEngine, gateway: GatewayConfig | None = None, directory: Path | None = None, **settings: Any
) -> AsyncIterator[Running]:
    """A gateway whose engines are ready when it is handed over."""
    with tempfile.TemporaryDirectory(dir=_MEMORY) as temporary:
        setup = Settings(
            **{
                "token": TOKEN,
                "api_key": None,
                "kubernetes": False,
                "engines": tuple(engine.url.removeprefix("http://") for engine in engines),
                "experience_dir": directory or Path(temporary),
                "internal_port": 1,
                "pod_name": "gateway-0",
                "pod_uid": "uid-0",
            }
            | settings
        )
        async with main.gateway(gateway or config(), setup) as parts, aiohttp.ClientSession() as http:
            running = (parts.probes.run(), main.upkeep(parts), parts.exchanges.watch())
            loops = [asyncio.create_task(loop) for loop in running]
            async with _served(parts.public, parts.internal) as (url, internal_url):
                async with asyncio.timeout(5):
                    while len(parts.fleet.ready()) < len(engines):
                        parts.probes.wake()
                        await asyncio.sleep(0.01)
                handed = Running(parts, url, internal_url, http)
                try:
                    yield handed
                finally:
                    for client in handed.clients:
                        await client.close()
                    for loop in loops:
                        loop.cancel()
                    await asyncio.wait(loops)


@contextlib.asynccontextmanager
async def _served(*apps: Any) -> AsyncIterator[list[str]]:
    """The applications on free ports; their base URLs."""
    servers = [serving.server(app, "127.0.0.1", 0, drain_sec=1) for app in apps]
    tasks = [asyncio.create_task(server.serve()) for server in servers]
    async with asyncio.timeout(5):
        while not all(server.started for server in servers):  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.005)
    try:
        yield [f"http://127.0.0.1:{_port(server)}" for server in servers]
    finally:
        for server in servers:
            server.force_exit = server.should_exit = True
        await asyncio.gather(*tasks)


def _port(server: uvicorn.Server) -> int:
    return int(server.servers[0].sockets[0].getsockname()[1])
