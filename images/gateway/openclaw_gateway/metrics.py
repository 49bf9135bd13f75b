"""Prometheus metrics of the gateway, and the refusals `stats` shows."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client import Counter as Counted

from openclaw_core import wire

_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class _Labelled:
    """A counter whose children are looked up once: their own look-up costs ten times the counting."""

    def __init__(self, counter: Counted) -> None:
        self._counter = counter
        self._children: dict[tuple[str, ...], Counted] = {}

    def add(self, *labels: str, many: float = 1) -> None:
        child = self._children.get(labels)
        if child is None:
            child = self._children[labels] = self._counter.labels(*labels)
        child.inc(many)


class Metrics:
    """One registry for one gateway; nothing global."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.refusals: Counter[str] = Counter()
        prefix = "openclawrl_gateway"
        self._refused = self._counted(f"{prefix}_refused", "Refusals by code.", "code")
        self._answered = self._counted(f"{prefix}_answers", "Answers by outcome.", "outcome")
        self._in_flight = Gauge(f"{prefix}_in_flight", "Requests at an engine.", registry=self.registry)
        self._seconds = Histogram(
            f"{prefix}_engine_seconds", "Seconds a request took.", buckets=_BUCKETS, registry=self.registry
        )
        self._requests = self._counted(f"{prefix}_requests", "Requests by client key and route.", "client", "path")
        self._tokens = self._counted(f"{prefix}_tokens", "Tokens the engine counted.", "client", "kind")
        self._paused = Gauge(f"{prefix}_paused", "1 while submissions are paused.", registry=self.registry)
        self._held = Gauge(f"{prefix}_held_seconds", "Seconds of the admin's hold left.", registry=self.registry)
        self._turns = Gauge("openclawrl_turns", "Turns by state or outcome.", ["state"], registry=self.registry)
        self._capacity = Gauge("openclawrl_capacity", "Turns that may be admitted.", registry=self.registry)

    def _counted(self, name: str, what: str, *labels: str) -> _Labelled:
        return _Labelled(Counted(name, what, labels, registry=self.registry))

    def refused(self, code: str) -> None:
        self.refusals[code] += 1
        self._refused.add(code)

    def answered(self, outcome: str) -> None:
        self._answered.add(outcome)

    def asked(self, client: str, path: str) -> None:
        self._requests.add(client, path)

    def used(self, client: str, prompt: int, completion: int) -> None:
        self._tokens.add(client, "prompt", many=prompt)
        self._tokens.add(client, "completion", many=completion)

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
