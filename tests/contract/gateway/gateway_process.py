"""The real gateway process, as its container runs it but for Kubernetes: engines by hand, a store in a directory."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from openclaw_core import names, wire
from openclaw_core.config.components import gateway_config
from openclaw_core.config.spec import TrainingSpec

TOKEN, KEY = "internal-token-of-the-suite", "client-key-of-the-suite"
READY_SEC = 60.0
Json = dict[str, Any]


@dataclass
class GatewayProcess:
    """A running gateway. `url` is its public base, without /v1."""

    url: str
    internal_url: str
    directory: Path
    process: asyncio.subprocess.Process
    http: aiohttp.ClientSession

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def database(self) -> bytes:
        """Every byte the store has on disk."""
        return b"".join(path.read_bytes() for path in sorted((self.directory / "experience").iterdir()))

    async def internal(self, path: str, body: Any = None) -> Json:
        sent = body.model_dump() if isinstance(body, wire.Message) else body
        headers = {"Authorization": f"Bearer {TOKEN}"}
        method = "GET" if sent is None else "POST"
        async with self.http.request(method, self.internal_url + path, json=sent, headers=headers) as response:
            assert response.status == 200, await response.text()
            found: Json = await response.json()
            return found

    async def stats(self) -> wire.Stats:
        return wire.Stats.model_validate(await self.internal("/internal/stats"))

    async def settled(self, **fields: Any) -> wire.Stats:
        """Stats once they are as `fields` says; a stream's end and its client's sight of it are two moments."""
        stats = await self.stats()
        for _ in range(200):
            if all(getattr(stats, name) == value for name, value in fields.items()):
                return stats
            await asyncio.sleep(0.05)
            stats = await self.stats()
        raise AssertionError(f"not {fields}: {stats}")

    async def judge(self, score: int = 1) -> list[wire.JudgeTurn]:
        """Every turn a judge would get, a few at a time, scored."""
        request, found = wire.LeaseTurns(worker="suite", max_turns=100, lease_sec=60), []
        while turns := wire.LeasedTurns.model_validate(await self.internal("/internal/turns/lease", request)).turns:
            for turn in turns:
                scored = wire.ScoreTurn(id=turn.id, lease=turn.lease, score=score, votes=[score])
                await self.internal("/internal/turns/score", scored)
            found += turns
        return found

    async def samples(self, many: int) -> list[wire.Sample]:
        request = wire.LeaseSamples(trainer_epoch=1, batch=many, min_batch=many, batch_wait_sec=300, lease_sec=60)
        return wire.LeasedSamples.model_validate(await self.internal("/internal/samples/lease", request)).samples

    async def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self.process.wait(), 60)


@asynccontextmanager
async def gateway_process(
    directory: Path, engines: Sequence[str], *, keys: Path | None = None, **sections: Any
) -> AsyncIterator[GatewayProcess]:
    """`engines` are base URLs; `sections` change the training's spec. Every client sends KEY, or one of `keys`."""
    port, internal_port = _free_port(), _free_port()
    serving = {"port": port, "host": "127.0.0.1"} | sections.pop("policyServing", {})
    spec = {
        "model": {"path": "base", "servedName": "policy"},
        "policyServing": serving,
        "policyTraining": {"rolloutBatchSize": 64},
        "api": {"baseUrl": "http://judge/v1"},
        "judge": {"model": "judge"},
    }
    config = gateway_config("suite", "suite", TrainingSpec.model_validate(spec | sections))
    (directory / "experience").mkdir()
    (directory / "config.json").write_text(config.model_dump_json(by_alias=True))
    environment = {
        "PATH": os.environ["PATH"],
        names.ENV_CONFIG: str(directory / "config.json"),
        names.ENV_GATEWAY_TOKEN: TOKEN,
        names.ENV_GATEWAY_API_KEY: KEY,
        "OPENCLAW_KUBERNETES": "off",
        "OPENCLAW_ENGINES": ",".join(engine.removeprefix("http://") for engine in engines),
        "OPENCLAW_EXPERIENCE_DIR": str(directory / "experience"),
        "OPENCLAW_INTERNAL_PORT": str(internal_port),
    }
    if keys is not None:
        environment["OPENCLAW_CLIENT_KEYS_DIR"] = str(keys)
    with (directory / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "openclaw_gateway", env=environment, stdout=log, stderr=log
        )
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        found = GatewayProcess(
            f"http://127.0.0.1:{port}", f"http://127.0.0.1:{internal_port}", directory, process, http
        )
        try:
            await _ready(found, len(engines))
            yield found
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def _ready(gateway: GatewayProcess, engines: int) -> None:
    """Until the process serves and has seen every engine ready."""
    async with asyncio.timeout(READY_SEC):
        while gateway.process.returncode is None:
            try:
                state = await gateway.internal("/state")
                if sum(engine["ready"] for engine in state["engines"]) == engines:
                    return
            except aiohttp.ClientConnectionError:
                pass
            await asyncio.sleep(0.1)
    raise AssertionError(f"the gateway ended with {gateway.process.returncode}: {gateway.log}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def curl(*arguments: str, stdin: bytes | None = None) -> tuple[int, bytes]:
    """(exit code, output) of the command line client; `-N -s -i` come first."""
    process = await asyncio.create_subprocess_exec(
        "curl", "-N", "-s", "-i", "--max-time", "60", *arguments,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, _ = await process.communicate(stdin)
    return process.returncode or 0, output


def curl_chat(url: str, body: Json, path: str = "/v1/chat/completions", *headers: str) -> list[str]:
    """Arguments of a POST; the body comes from stdin, so its size does not matter."""
    lines = [f"Authorization: Bearer {KEY}", "Content-Type: application/json", *headers]
    return [url + path, "--data-binary", json.dumps(body), *(word for line in lines for word in ("-H", line))]
