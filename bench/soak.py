"""2,000 streams at once for minutes: `python -m bench.soak [--minutes 10] [--streams 2000]`.

A training with `rolloutBatchSize` 1024, `queue.maxSize` 4096 and `maxConcurrent` 2048; its gateway with a SQLite store
on disk; one engine; a judge and a trainer that keep up. Each stream has 100 tokens, two a second, so that it
lasts 50 s; whoever is refused comes again. Streams end in waves, and with a wave 2,000 turns get their next state while
2,000 new ones begin: `maxHeadOffPolicyness` 3 has (3 + 1) · 1024 places for them, its default 2 has 3,072 and would
refuse (`staleness_bound`) what the judge has not done within the wave. Checked while it runs and at its end:
- every stream is whole: all its tokens, its finish reason, [DONE];
- nobody is refused;
- the accounts: served = what clients were answered, and the identity of the store, at each look;
- resident memory: the last third's median is not above the middle third's by more than 5 %.

The last line is JSON; the exit code is 0 if all of it holds.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

if __name__ == "__main__" and not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.proxies import stacks
from bench.proxies.load import Connection, connect
from openclaw_core import wire
from openclaw_gateway.store.stats import difference

TOKENS, STEP_SEC = 100, 0.5
GROWTH_ALLOWED = 1.05
_HEADERS = {"Authorization": f"Bearer {stacks.TOKEN}"}


@dataclass
class Soak:
    """What happened so far."""

    gateway: stacks.Stack
    until: float
    outcomes: Counter[str] = field(default_factory=Counter)
    rss_mb: list[tuple[float, float]] = field(default_factory=list)
    most_open: int = 0
    open: int = 0
    judged: int = 0
    trained: int = 0
    off_by: list[tuple[int, int]] = field(default_factory=list)

    # ------------------------------------------------------------ users

    async def user(self, number: int, size: int) -> None:
        """One conversation after the other, two turns each: the second is the first's next state."""
        connection = await connect(self.gateway.port)
        await asyncio.sleep(number % 100 * 0.1)  # they do not all begin at once
        turn = 0
        while time.monotonic() < self.until:
            session = f"user-{number}-{turn // 2}"
            second = turn % 2 == 1
            outcome, wait = await self._ask(connection, request(session, second=second), size)
            self.outcomes[outcome] += 1
            if outcome == "whole":
                turn += 1
            elif wait:
                await asyncio.sleep(wait)
        connection.close()

    async def _ask(self, connection: Connection, body: bytes, size: int) -> tuple[str, float]:
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            seen = await connection.ask(body)
        finally:
            self.open -= 1
        if seen.status != 200:
            return str(seen.status), 2.0
        return ("whole" if seen.done and abs(seen.size - size) < 200 else "broken"), 0.0

    # ------------------------------------------------------------ judge and trainer

    async def judge(self, http: aiohttp.ClientSession) -> None:
        while True:
            lease = wire.LeaseTurns(worker="soak", max_turns=64, lease_sec=60, wait_sec=1)
            leased = (await self._post(http, "turns/lease", lease))["turns"]
            await asyncio.gather(*(self._score(http, turn) for turn in leased))
            self.judged += len(leased)

    async def _score(self, http: aiohttp.ClientSession, turn: dict[str, int]) -> None:
        score = wire.ScoreTurn(id=turn["id"], lease=str(turn["lease"]), score=turn["id"] % 3 - 1, votes=[1])
        await self._post(http, "turns/score", score)

    async def trainer(self, http: aiohttp.ClientSession) -> None:
        while True:
            wanted = wire.LeaseSamples(
                trainer_epoch=1, batch=64, min_batch=1, batch_wait_sec=1, lease_sec=60, wait_sec=1
            )
            ids = [sample["id"] for sample in (await self._post(http, "samples/lease", wanted))["samples"]]
            if ids:
                ack = wire.AckSamples(trainer_epoch=1, ids=ids, version="1-0a1b2c3d")
                self.trained += len((await self._post(http, "samples/ack", ack))["ids"])

    async def watch(self, http: aiohttp.ClientSession) -> None:
        while True:
            self.rss_mb.append((time.monotonic(), self.gateway.rss_mb()))
            stats = await self.stats(http)
            self.off_by.append(difference(stats))
            sys.stderr.write(
                f"{len(self.rss_mb) * 5:5d} s  open {self.open:5d}  whole {self.outcomes['whole']:7d}  "
                f"to judge {stats.waiting.judge:5d}  queued {stats.queued:5d}  trained {self.trained:6d}  "
                f"rss {self.rss_mb[-1][1]:6.1f} MB  {dict(self.outcomes)}\n"
            )
            await asyncio.sleep(5.0)

    async def stats(self, http: aiohttp.ClientSession) -> wire.Stats:
        async with http.get(self._url("stats"), headers=_HEADERS) as answer:
            return wire.Stats.model_validate(await answer.json())

    async def _post(
        self, http: aiohttp.ClientSession, path: str, body: wire.Message
    ) -> dict[str, list[dict[str, int]]]:
        async with http.post(self._url(path), json=body.model_dump(), headers=_HEADERS) as answer:
            answer.raise_for_status()
            return dict(await answer.json())

    def _url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.gateway.internal_port}/internal/{path}"


def request(session: str, *, second: bool) -> bytes:
    messages = [{"role": "user", "content": f"{session}: tell me a story."}]
    if second:
        text = "".join(f" word{position % 100}" for position in range(TOKENS))
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "Go on."}]
    body = json.dumps({"model": "policy", "messages": messages, "stream": True, "session_id": session}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: soak\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def run(minutes: float, streams: int, directory: Path) -> dict[str, object]:
    bounds = {"max_concurrent": 2048, "next_state_grace_sec": 0, "session_idle_sec": 60}
    sections: dict[str, dict[str, object]] = {
        "policy_serving": {"gateway": bounds},
        "policy_training": {"rollout_batch_size": 1024, "max_head_off_policyness": 3},
        "reward_judging": {"judge_concurrency": 64},
    }
    async with (
        stacks.engine(TOKENS, STEP_SEC) as engine,
        stacks.gateway(engine.port, directory, sections) as gateway,
        aiohttp.ClientSession() as http,
    ):
        probe = await connect(gateway.port)
        size = (await probe.ask(request("probe", second=False))).size
        probe.close()
        soak = Soak(gateway, time.monotonic() + minutes * 60)
        loops = [asyncio.create_task(loop(http)) for loop in (soak.judge, soak.trainer, soak.watch)]
        users = asyncio.gather(*(soak.user(number, size) for number in range(streams)))
        await asyncio.wait([users, *loops], return_when=asyncio.FIRST_COMPLETED)
        for loop in loops:
            if loop.done():
                loop.result()
        await users
        await asyncio.sleep(3.0)
        for loop in loops:
            loop.cancel()
        return verdict(soak, await soak.stats(http))


def verdict(soak: Soak, stats: wire.Stats) -> dict[str, object]:
    began, ended = soak.rss_mb[0][0], soak.rss_mb[-1][0]
    third = (ended - began) / 3
    middle = statistics.median(mb for at, mb in soak.rss_mb if began + third <= at < began + 2 * third)
    last = statistics.median(mb for at, mb in soak.rss_mb if at >= began + 2 * third)
    whole = soak.outcomes["whole"] + 1  # the probe
    checks = {
        "no_dropped_event": soak.outcomes["broken"] == 0,
        "none_refused": not stats.refused,
        "accounted": stats.served == whole and difference(stats) == (0, 0) and set(soak.off_by) == {(0, 0)},
        "rss_flat": last <= middle * GROWTH_ALLOWED,
    }
    return {
        **checks,
        "ok": all(checks.values()),
        "most_open": soak.most_open,
        "streams": whole,
        "events": whole * (TOKENS + 3),
        "refused": stats.refused,
        "served": stats.served,
        "trained": stats.trained,
        "dropped": stats.dropped,
        "rss_mb_middle": round(middle, 1),
        "rss_mb_last": round(last, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--streams", type=int, default=2000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="openclaw-soak-") as directory:
        ended = asyncio.run(run(options.minutes, options.streams, Path(directory)))
    sys.stdout.write(json.dumps(ended) + "\n")
    return 0 if ended["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
