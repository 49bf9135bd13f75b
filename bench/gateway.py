"""What the recording gateway costs beside other proxies: `python bench/gateway.py [--rounds 3]`.

One engine, one load, one run, rounds in turn. Processor time of the proxy's processes (user + system):
- per request: non-streamed answers of 64 tokens, 32 clients in a closed loop;
- per chunk: streams of 256 tokens, 64 at once, a token each 10 ms (the engine's pace, so that chunks come alone);
  whole streams, divided by their chunks: a request's own cost is in it.
Added latency: 100 requests a second in an open loop, less the same asked of the engine directly. Growth of resident
memory: over 10,000 further recorded requests, every fourth of them streamed. Every answer is checked. The gateway
records all of it, on disk.

| ratio | between |
| --- | --- |
| `chunk_vs_raw`, `request_vs_raw` | the gateway and a raw ASGI pass-through that records nothing |
| `request_vs_litellm` | the gateway and LiteLLM's proxy |
| `chunk_vs_httpx` | the gateway and an httpx proxy that passes a stream on |

The last line is JSON.
"""

import argparse
import asyncio
import itertools
import json
import os
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # also when it is run by its path

from bench.proxies import stacks
from bench.proxies.load import Seen, closed_loop, open_loop, quantile

TOKENS, STREAM_TOKENS, STEP_SEC = 64, 256, 0.01
CLIENTS, STREAMS = 32, 64
REQUESTS, SLOW_REQUESTS = 2000, 300
LATENCY_REQUESTS, LATENCY_PER_SEC = 400, 100.0
GROWTH_REQUESTS = 10_000
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "openclaw-training/bench"
"""Where `make bench-gateway` puts LiteLLM and sglang-router."""
_numbers = itertools.count()
_SYSTEM = "You are a helpful assistant. " * 60


@dataclass
class Measured:
    """Of one proxy, a value a round."""

    request_us: list[float] = field(default_factory=list)
    chunk_us: list[float] = field(default_factory=list)
    added_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    first_byte_ms: list[float] = field(default_factory=list)


def request(*, stream: bool) -> bytes:
    """A chat of 2 kB that was never asked before; no session header, as a stock client sends it."""
    messages = [
        {"role": "system", "content": _SYSTEM},
        {"role": "user", "content": f"Question {next(_numbers)}: what is the answer?"},
    ]
    body = json.dumps({"model": "policy", "messages": messages, "stream": stream, "temperature": 0.7}).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nX-Bench-Stream: 1\r\n"
        f"Authorization: Bearer {stacks.KEY}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def measure(stack: stacks.Stack, streaming: stacks.Stack, into: Measured, *, direct: Sequence[float]) -> None:
    """One round: `stack` stands before the engine of whole answers, `streaming` before the one that streams."""
    slow = stack.name in ("LiteLLM proxy", "OpenClaw-RL (httpx)")
    many, streams = (SLOW_REQUESTS, STREAMS) if slow else (REQUESTS, STREAMS * 2)
    await closed_loop(stack.port, lambda _: request(stream=False), 100, CLIENTS)
    before = stack.cpu_sec()
    checked(await closed_loop(stack.port, lambda _: request(stream=False), many, CLIENTS), stack)
    into.request_us.append((stack.cpu_sec() - before) / many * 1e6)
    seen = await open_loop(stack.port, lambda _: request(stream=False), LATENCY_REQUESTS, LATENCY_PER_SEC)
    for share, name in ((0.5, "p50"), (0.99, "p99")):
        into.added_ms[name].append((quantile([one.last_sec for one in seen], share) - quantile(direct, share)) * 1e3)
    before = streaming.cpu_sec()
    seen = await closed_loop(streaming.port, lambda _: request(stream=True), streams, STREAMS)
    checked(seen, streaming, streams=True)
    into.chunk_us.append((streaming.cpu_sec() - before) / (streams * STREAM_TOKENS) * 1e6)
    into.first_byte_ms.append(quantile([one.first_sec for one in seen], 0.5) * 1e3)


def checked(seen: Sequence[Seen], stack: stacks.Stack, *, streams: bool = False) -> None:
    faulty = [one for one in seen if one.status != 200 or one.done != streams or one.size < 500]
    if faulty:
        raise RuntimeError(f"{stack.name}: {len(faulty)} of {len(seen)} answers are faulty, e.g. {faulty[0]}")


async def growth_mb(stack: stacks.Stack, many: int) -> float:
    """Resident memory after `many` more requests, less what it was before them."""
    before = stack.rss_mb()
    seen = await closed_loop(stack.port, lambda n: request(stream=n % 4 == 3), many, CLIENTS)
    if any(one.status != 200 for one in seen):
        raise RuntimeError("refused while its memory was watched")
    return stack.rss_mb() - before


async def run(rounds: int, only: Sequence[str], growth_requests: int, directory: Path) -> dict[str, float]:
    results: dict[str, Measured] = defaultdict(Measured)
    async with AsyncExitStack() as running:
        whole = await running.enter_async_context(stacks.engine(TOKENS, 0.0))
        streamed = await running.enter_async_context(stacks.engine(STREAM_TOKENS, STEP_SEC))
        pairs = []
        for kind in only:
            say(f"starting {kind}")
            pair = []
            for engine in (whole, streamed):
                place = directory / f"{kind}-{engine.port}"
                place.mkdir()
                pair.append(await running.enter_async_context(_stack(kind, engine.port, place)))
            pairs.append(pair)
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            direct = await open_loop(whole.port, lambda _: request(stream=False), LATENCY_REQUESTS, LATENCY_PER_SEC)
            for stack, streaming in pairs:
                await measure(stack, streaming, results[stack.name], direct=[one.last_sec for one in direct])
            say(table(results))
        growth = 0.0
        for stack, _ in pairs:
            if stack.name == "openclaw gateway":
                say(f"memory over {growth_requests} requests")
                growth = await growth_mb(stack, growth_requests)
    sys.stdout.write(f"\n{table(results)}\n\n")
    return ratios(results) | {"rss_growth_mb": round(growth, 1)}


def _stack(kind: str, engine_port: int, place: Path):  # type: ignore[no-untyped-def]  # an async context of a Stack
    if kind == "gateway":
        return stacks.gateway(engine_port, place)
    if kind == "litellm":
        return stacks.litellm(engine_port, place, CACHE)
    if kind == "router":
        return stacks.router(engine_port, CACHE)
    return {"raw": stacks.raw, "httpx": stacks.buffered}[kind](engine_port)


def ratios(results: dict[str, Measured]) -> dict[str, float]:
    """Medians over the rounds of the ratio within each round."""
    ours = results["openclaw gateway"]
    pairs = {
        "chunk_vs_raw": ("raw ASGI", "chunk_us"),
        "request_vs_raw": ("raw ASGI", "request_us"),
        "request_vs_litellm": ("LiteLLM proxy", "request_us"),
        "chunk_vs_litellm": ("LiteLLM proxy", "chunk_us"),
        "chunk_vs_httpx": ("OpenClaw-RL (httpx)", "chunk_us"),
        "request_vs_httpx": ("OpenClaw-RL (httpx)", "request_us"),
        "chunk_vs_router": ("sglang-router", "chunk_us"),
        "request_vs_router": ("sglang-router", "request_us"),
    }
    found = {}
    for name, (other, kind) in pairs.items():
        if other in results:
            rounds = zip(getattr(ours, kind), getattr(results[other], kind), strict=True)
            found[name] = round(statistics.median(one / another for one, another in rounds), 3)
    return found


def table(results: dict[str, Measured]) -> str:
    """Medians of the rounds so far."""
    lines = [f"{'proxy':<22}{'us/request':>12}{'us/chunk':>10}{'added p50 ms':>14}{'p99 ms':>9}{'first byte ms':>15}"]
    for name, one in results.items():
        values = (one.request_us, one.chunk_us, one.added_ms["p50"], one.added_ms["p99"], one.first_byte_ms)
        request_us, chunk_us, p50, p99, first = (statistics.median(each) for each in values)
        lines.append(f"{name:<22}{request_us:>12.0f}{chunk_us:>10.1f}{p50:>14.2f}{p99:>9.2f}{first:>15.1f}")
    return "\n".join(lines)


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--growth-requests", type=int, default=GROWTH_REQUESTS, help="over which memory is watched")
    parser.add_argument("--only", default="gateway,raw,httpx,router,litellm", help="comma-separated")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="openclaw-bench-") as directory:
        work = run(options.rounds, options.only.split(","), options.growth_requests, Path(directory))
        ended = asyncio.run(work)
    sys.stdout.write(json.dumps(ended) + "\n")


if __name__ == "__main__":
    main()
