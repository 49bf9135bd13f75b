"""What the judge knows about its endpoint: healthy or not, since when, in whose words; and counts of what it did.

Fed by the endpoint client and the worker, read by the HTTP server. No clock of its own: `now` comes in.
"""

import logging
import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from openclaw_core.wire import JudgeState

_log = logging.getLogger(__name__)
FAILURES_UNTIL_UNHEALTHY = 3
_NOT_ASKED = "no request to the judge endpoint has been answered yet"
COUNTS = ("scored", "unjudged", "requests", "retries", "timeouts", "refused", "failed", "unparsed")


class JudgingState:
    """Health of the endpoint as a small machine: not asked → ok ⇄ failing."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._ok = False
        self._error: str | None = _NOT_ASKED
        self._since = clock()
        self._failures = 0
        self._counts = dict.fromkeys(COUNTS, 0)
        self.registry = CollectorRegistry()
        self._events = Counter("openclawrl_judge_events", "Judge events by kind", ["kind"], registry=self.registry)
        self._scores = Counter("openclawrl_judge_scores", "Scored turns by score", ["score"], registry=self.registry)
        self._healthy = Gauge("openclawrl_judge_endpoint_ok", "1 while the endpoint answers", registry=self.registry)
        self.latency = Histogram(
            "openclawrl_judge_request_seconds", "Seconds of an answered request", registry=self.registry
        )
        self.in_flight = Gauge("openclawrl_judge_requests_in_flight", "Open requests", registry=self.registry)

    @property
    def ok(self) -> bool:
        return self._ok

    def count(self, kind: str) -> None:
        """One more of `kind`, a member of COUNTS."""
        self._counts[kind] += 1
        self._events.labels(kind).inc()

    def scored(self, score: int) -> None:
        self.count("scored")
        self._scores.labels(str(score)).inc()

    def answered(self) -> None:
        """The endpoint answered a request: it is healthy, whatever it said."""
        self._failures = 0
        self._set(True, None)

    def failed(self, words: str, *, refused_key: bool = False) -> None:
        """A request failed for good. A refused key is certain at once; anything else may be a hiccup."""
        self._failures += 1
        if refused_key or not self._ok or self._failures >= FAILURES_UNTIL_UNHEALTHY:
            self._set(False, words)

    def snapshot(self) -> JudgeState:
        return JudgeState(ok=self._ok, error=self._error, since=self._since, counts=dict(self._counts))

    def _set(self, ok: bool, error: str | None) -> None:
        if ok != self._ok:
            self._since = self._clock()
        if error not in (None, self._error):
            _log.warning("the judge endpoint fails: %s", error)
        elif ok and not self._ok:
            _log.info("the judge endpoint answers")
        self._ok, self._error = ok, error
        self._healthy.set(1 if ok else 0)
