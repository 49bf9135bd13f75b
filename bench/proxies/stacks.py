"""The proxies as processes: how each is started, when it is ready, and what it has used of the processor."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.proxies.load import connect
from openclaw_core import names
from openclaw_core.config.components import gateway_config
from openclaw_core.config.spec import TrainingSpec
from openclaw_gateway import settings

TOKEN = "bench"
KEY = "sk-bench"
"""What clients send; LiteLLM will not start without one."""
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_READY_SEC = 180.0


@dataclass
class Stack:
    """A running process (with its children) on a port."""

    name: str
    port: int
    pid: int
    internal_port: int = 0

    def cpu_sec(self) -> float:
        """User and system time of the process and its descendants, those that ended included."""
        return sum(_cpu_sec(pid) for pid in _family(self.pid))

    def rss_mb(self) -> float:
        return sum(_rss_mb(pid) for pid in _family(self.pid))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def engine(tokens: int, step_sec: float) -> AsyncIterator[Stack]:
    port = free_port()
    command = [sys.executable, "-m", "bench.proxies.engine", str(port), str(tokens), str(step_sec)]
    async with _process("engine", command, port, "/health") as stack:
        yield stack


@asynccontextmanager
async def raw(engine_port: int) -> AsyncIterator[Stack]:
    async with _python("raw ASGI", "bench.proxies.raw", engine_port) as stack:
        yield stack


@asynccontextmanager
async def buffered(engine_port: int) -> AsyncIterator[Stack]:
    async with _python("OpenClaw-RL (httpx)", "bench.proxies.buffered", engine_port) as stack:
        yield stack


@asynccontextmanager
async def gateway(
    engine_port: int, directory: Path, spec: Mapping[str, Mapping[str, object]] | None = None
) -> AsyncIterator[Stack]:
    """With its SQLite store in `directory`, recording on. `spec`: sections beside the wide bounds."""
    port, internal = free_port(), free_port()
    file = directory / "config.json"
    file.write_text(_gateway_spec(port, spec or {}))
    environ = {
        names.ENV_CONFIG: str(file),
        names.ENV_GATEWAY_TOKEN: TOKEN,
        settings.ENV_KUBERNETES: "off",
        settings.ENV_ENGINES: f"127.0.0.1:{engine_port}",
        settings.ENV_EXPERIENCE_DIR: str(directory),
        settings.ENV_INTERNAL_PORT: str(internal),
    }
    command = [sys.executable, "-m", "openclaw_gateway"]
    async with _process("openclaw gateway", command, port, "/readyz", environ) as stack:
        stack.internal_port = internal
        yield stack


def _gateway_spec(port: int, sections: Mapping[str, Mapping[str, object]]) -> str:
    """Wide bounds, and no grace: what is measured is the proxy, not its refusals."""
    base: dict[str, dict[str, object]] = {
        "model": {"path": "base", "served_name": "policy"},
        "api": {"base_url": "http://judge/v1"},
        "judge": {"model": "judge"},
        "policy_serving": {
            "host": "127.0.0.1",
            "port": port,
            "gateway": {"max_concurrent": 2048, "next_state_grace_sec": 0},
        },
        "policy_training": {"rollout_batch_size": 1024},
        "queue": {"max_size": 4096},
    }
    for section, fields in sections.items():
        base[section] = base.get(section, {}) | dict(fields)
    return gateway_config("bench", "bench", TrainingSpec.model_validate(base)).model_dump_json(by_alias=True)


@asynccontextmanager
async def litellm(engine_port: int, directory: Path, environment: Path) -> AsyncIterator[Stack]:
    port = free_port()
    file = directory / "litellm.yaml"
    model = {"model": "openai/policy", "api_base": f"http://127.0.0.1:{engine_port}/v1", "api_key": "none"}
    file.write_text(json.dumps({"model_list": [{"model_name": "policy", "litellm_params": model}]}))
    command = [str(environment / "bin/litellm"), "--config", str(file), "--host", "127.0.0.1", "--port", str(port)]
    environ = {
        "LITELLM_MASTER_KEY": KEY,
        "LITELLM_LOG": "ERROR",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
    }
    async with _process(
        "LiteLLM proxy", [*command, "--num_workers", "1"], port, "/health/liveliness", environ
    ) as stack:
        yield stack


@asynccontextmanager
async def router(engine_port: int, environment: Path) -> AsyncIterator[Stack]:
    port, metrics = free_port(), free_port()
    command = [str(environment / "bin/python"), "-m", "sglang_router.launch_router", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--worker-urls", f"http://127.0.0.1:{engine_port}", "--policy", "round_robin"]
    command += ["--worker-startup-check-interval", "1", "--log-level", "error", "--prometheus-port", str(metrics)]
    async with _process("sglang-router", command, port, "/readiness") as stack:
        yield stack


@asynccontextmanager
async def _python(name: str, module: str, engine_port: int) -> AsyncIterator[Stack]:
    port = free_port()
    command = [sys.executable, "-m", module, str(port), f"http://127.0.0.1:{engine_port}"]
    async with _process(name, command, port, None) as stack:
        yield stack


@asynccontextmanager
async def _process(
    name: str, command: Sequence[str], port: int, ready: str | None, environ: Mapping[str, str] | None = None
) -> AsyncIterator[Stack]:
    """Started in a group of its own and ended as one; its words go to our standard error."""
    child = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, **(environ or {})}, stdout=sys.stderr, start_new_session=True
    )
    try:
        await _until_ready(name, child, port, ready)
        yield Stack(name, port, child.pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        try:
            await asyncio.wait_for(child.wait(), 15.0)
        except TimeoutError:
            os.killpg(child.pid, signal.SIGKILL)
            await child.wait()


async def _until_ready(name: str, child: asyncio.subprocess.Process, port: int, path: str | None) -> None:
    async with asyncio.timeout(_READY_SEC):
        while True:
            if child.returncode is not None:
                raise RuntimeError(f"{name} ended with {child.returncode} at its start")
            with contextlib.suppress(OSError):
                connection = await connect(port)
                request = f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode()
                status = (await connection.ask(request)).status if path else 200
                connection.close()
                if status == 200:
                    return
            await asyncio.sleep(0.2)


def _family(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{parent}/task").iterdir():
                found += map(int, (thread / "children").read_text().split())
    return found


def _cpu_sec(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS


def _rss_mb(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 1e6
    except OSError:
        return 0.0
