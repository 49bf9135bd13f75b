"""Prometheus metrics of the gateway, and the refusals `stats` shows."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client import Counter as Counted

from openclaw_core import wire

_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """One registry for one gateway; nothing global."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.refusals: Counter[str] = Counter()
        prefix = "openclawrl_gateway"
        self._refused = Counted(f"{prefix}_refused", "Refusals by code.", ["code"], registry=self.registry)
        self._answered = Counted(f"{prefix}_answers", "Answers by outcome.", ["outcome"], registry=self.registry)
        self._in_flight = Gauge(f"{prefix}_in_flight", "Requests at an engine.", registry=self.registry)
        self._seconds = Histogram(
            f"{prefix}_engine_seconds", "Seconds a request took.", buckets=_BUCKETS, registry=self.registry
        )
        self._requests = Counted(
            f"{prefix}_requests", "Requests by client key and route.", ["client", "path"], registry=self.registry
        )
        self._tokens = Counted(
            f"{prefix}_tokens", "Tokens the engine counted.", ["client", "kind"], registry=self.registry
        )
        self._paused = Gauge(f"{prefix}_paused", "1 while submissions are paused.", registry=self.registry)
        self._held = Gauge(f"{prefix}_held_seconds", "Seconds of the admin's hold left.", registry=self.registry)
        self._turns = Gauge("openclawrl_turns", "Turns by state or outcome.", ["state"], registry=self.registry)
        self._capacity = Gauge("openclawrl_capacity", "Turns that may be admitted.", registry=self.registry)

    def refused(self, code: str) -> None:
        self.refusals[code] += 1
        self._refused.labels(code).inc()

    def answered(self, outcome: str) -> None:
        self._answered.labels(outcome).inc()

    def asked(self, client: str, path: str) -> None:
        self._requests.labels(client, path).inc()

    def used(self, client: str, prompt: int, completion: int) -> None:
        self._tokens.labels(client, "prompt").inc(prompt)
        self._tokens.labels(client, "completion").inc(completion)

    @contextmanager
    def in_flight(self) -> Iterator[None]:
        began = time.monotonic()
        self._in_flight.inc()
        try:
            yield
        finally:
            self._in_flight.dec()
            self._seconds.observe(time.monotonic() - began)

    def render(self, stats: wire.Stats | None, *, paused: bool, held_sec: float) -> bytes:
        """The text format; the store's numbers are read for each scrape."""
        self._paused.set(1 if paused else 0)
        self._held.set(held_sec)
        if stats is not None:
            self._capacity.set(stats.capacity)
            for state, many in _turns_by_state(stats).items():
                self._turns.labels(state).set(many)
        return generate_latest(self.registry)


def _turns_by_state(stats: wire.Stats) -> dict[str, int]:
    states = {
        "served": stats.served,
        "recorded": stats.recorded,
        "trained": stats.trained,
        "queued": stats.queued,
        "leased": stats.leased,
        "generating": stats.waiting.generating,
        "next_state": stats.waiting.next_state,
        "judge": stats.waiting.judge,
    }
    states |= {f"dropped_{reason}": many for reason, many in stats.dropped.items()}
    return states | {f"untracked_{reason}": many for reason, many in stats.untracked.items()}
