"""The users' own diary: every answer, refusal and failure with their clock. Nobody else's counters enter it.

The demo and the tests compare it with the gateway's accounts: what the two disagree on was lost.
"""

from collections import Counter, deque

from openclaw_core.wire import ClientReport

KEPT_REFUSALS = 10_000


class Journal:
    """Written by the users, read by the HTTP server."""

    def __init__(self) -> None:
        self._sessions = self._ok = self._failed = self._preferred = self._judged = 0
        self._refused: deque[tuple[float, float, int, str]] = deque(maxlen=KEPT_REFUSALS)
        self._refused_total: Counter[str] = Counter()
        self._in_flight = 0

    def session_began(self) -> None:
        self._in_flight += 1

    def session_ended(self, *, complete: bool) -> None:
        self._in_flight -= 1
        self._sessions += int(complete)

    def answered(self) -> None:
        self._ok += 1

    def refused(self, sent_at: float, answered_at: float, status: int, code: str) -> None:
        self._refused.append((sent_at, answered_at, status, code))
        self._refused_total[f"{status}:{code}"] += 1

    def failed(self) -> None:
        self._failed += 1

    def reacted(self, *, liked: bool) -> None:
        self._judged += 1
        self._preferred += int(liked)

    def report(self, *, stopped: bool) -> ClientReport:
        """`in_flight` counts sessions; a stopped environment is quiet when it is 0."""
        return ClientReport(
            sessions=self._sessions,
            turns_ok=self._ok,
            refused=list(self._refused),
            refused_total=dict(self._refused_total),
            failed=self._failed,
            preferred=self._preferred,
            judged=self._judged,
            in_flight=self._in_flight,
            stopped=stopped,
        )
