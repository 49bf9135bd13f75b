"""Prometheus metrics of the gateway, and the refusals `stats` shows."""

import time
from collections import Counter

from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client import Counter as Counted

from openclaw_core import wire

_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class _Labelled:
    """A counter that is counted here and told at each scrape: telling costs ten times the counting."""

    def __init__(self, counter: Counted) -> None:
        self._counter = counter
        self._untold: Counter[tuple[str, ...]] = Counter()

    def add(self, *labels: str, many: int = 1) -> None:
        self._untold[labels] += many

    def tell(self) -> None:
        for labels, many in self._untold.items():
            self._counter.labels(*labels).inc(many)
        self._untold.clear()


class _InFlight:
    def __init__(self, metrics: "Metrics") -> None:
        self._metrics, self._began = metrics, time.monotonic()

    def __enter__(self) -> None:
        self._metrics.open += 1

    def __exit__(self, *_: object) -> None:
        self._metrics.open -= 1
        self._metrics.seconds.observe(time.monotonic() - self._began)


class Metrics:
    """One registry for one gateway; nothing global."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.refusals: Counter[str] = Counter()
        self.open = 0
        self._all_counted: list[_Labelled] = []
        prefix = "openclawrl_gateway"
        self._refused = self._counted(f"{prefix}_refused", "Refusals by code.", "code")
        self._answered = self._counted(f"{prefix}_answers", "Answers by outcome.", "outcome")
        self._in_flight = Gauge(f"{prefix}_in_flight", "Requests at an engine.", registry=self.registry)
        self.seconds = Histogram(
            f"{prefix}_engine_seconds", "Seconds a request took.", buckets=_BUCKETS, registry=self.registry
        )
        self._requests = self._counted(f"{prefix}_requests", "Requests by client key and route.", "client", "path")
        self._tokens = self._counted(f"{prefix}_tokens", "Tokens the engine counted.", "client", "kind")
        self._paused = Gauge(f"{prefix}_paused", "1 while submissions are paused.", registry=self.registry)
        self._held = Gauge(f"{prefix}_held_seconds", "Seconds of the admin's hold left.", registry=self.registry)
        self._turns = Gauge("openclawrl_turns", "Turns by state or outcome.", ["state"], registry=self.registry)
        self._capacity = Gauge("openclawrl_capacity", "Turns that may be admitted.", registry=self.registry)

    def _counted(self, name: str, what: str, *labels: str) -> _Labelled:
        counted = _Labelled(Counted(name, what, labels, registry=self.registry))
        self._all_counted.append(counted)
        return counted

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

    def in_flight(self) -> "_InFlight":
        """For as long as a request is at an engine."""
        return _InFlight(self)

    def render(self, stats: wire.Stats | None, *, paused: bool, held_sec: float) -> bytes:
        """The text format; the store's numbers are read for each scrape."""
        for counted in self._all_counted:
            counted.tell()
        self._in_flight.set(self.open)
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
