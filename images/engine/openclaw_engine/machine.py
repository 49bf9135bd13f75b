"""Decisions of the sync agent, apart from every effect.

An exchange puts one version into a running SGLang. Its steps, and what each failure leads to:

    DRAIN ─▶ PAUSE ─▶ UPDATE ─▶ VERIFY ─▶ CONTINUE ─▶ DONE
      (drain  └─ failed ┴─ failed ┴─ failed ─▶┘  ▲ │
       only)     or deadline passed: straight ───┘ └ failed: again, until GIVE_UP_SEC after the deadline, then LOST

Whatever happens, CONTINUE follows once PAUSE was tried: a paused SGLang accepts requests and lets them wait for ever,
so a lost answer to PAUSE counts as paused. LOST means that only a restart of the container helps.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

GIVE_UP_SEC = 30.0
"""How long after the deadline CONTINUE is tried before the container is given up."""

DRAIN_SHARE = 0.5
"""Share of the time until the deadline that `inFlight: drain` may spend waiting for running turns."""


class Step(StrEnum):
    """What the agent does next."""

    DRAIN = "drain"
    PAUSE = "pause"
    UPDATE = "update"
    VERIFY = "verify"
    CONTINUE = "continue"
    DONE = "done"
    LOST = "lost"


@dataclass(frozen=True)
class Exchange:
    """One sync as far as it has got. Times are seconds on the agent's monotonic clock."""

    epoch: int
    version: str
    began: float
    deadline: float
    drain: bool = False
    paused_at: float | None = None
    updated_at: float | None = None
    update_sec: float = 0.0
    verified: bool = False
    continued_at: float | None = None
    error: str | None = None
    mixed: bool = False
    """Some data-parallel ranks have the new weights and some the old ones: only a restart makes them one again."""

    @property
    def pause_sec(self) -> float:
        """Seconds SGLang stood still; 0 while it does, or when it never did."""
        if self.paused_at is None or self.continued_at is None:
            return 0.0
        return self.continued_at - self.paused_at

    @property
    def paused(self) -> bool:
        return self.paused_at is not None and self.continued_at is None

    @property
    def ok(self) -> bool:
        return self.verified and self.error is None


def next_step(exchange: Exchange, now: float) -> Step:
    """The next step of an exchange at time `now`."""
    if exchange.continued_at is not None:
        return Step.DONE
    if exchange.paused_at is None:
        if exchange.error is not None or now >= exchange.deadline:
            return Step.DONE
        return Step.DRAIN if exchange.drain else Step.PAUSE
    if exchange.verified or exchange.error is not None or now >= exchange.deadline:
        return Step.CONTINUE if now < exchange.deadline + GIVE_UP_SEC else Step.LOST
    return Step.VERIFY if exchange.updated_at is not None else Step.UPDATE


def time_limit(exchange: Exchange, step: Step, now: float) -> float:
    """Seconds a step may take: until the deadline; CONTINUE gets a fixed 5 s a try."""
    if step is Step.CONTINUE:
        return 5.0
    left = max(exchange.deadline - now, 0.001)
    return left * DRAIN_SHARE if step is Step.DRAIN else left


def after(exchange: Exchange, step: Step, started: float, now: float, error: str | None) -> Exchange:
    """The exchange after `step`, which ran from `started` to `now` and failed with `error` (None: it worked)."""
    if step is Step.DRAIN:
        return replace(exchange, drain=False)  # turns still running at the end of the wait are retracted
    if step is Step.PAUSE:
        return replace(exchange, paused_at=started, error=error)
    if step is Step.CONTINUE:
        return replace(exchange, continued_at=now) if error is None else exchange
    if error is not None:
        return replace(exchange, error=error)
    if step is Step.UPDATE:
        return replace(exchange, updated_at=now, update_sec=now - started)
    return replace(exchange, verified=True)


def mixed(exchange: Exchange) -> Exchange:
    """The exchange after an update that not all data-parallel ranks took."""
    return replace(exchange, mixed=True)


def outcome(exchange: Exchange) -> str | None:
    """Error of a finished exchange in words, None when the version is loaded and verified."""
    if exchange.ok:
        return None
    return exchange.error or f"the deadline passed before {exchange.version} was loaded"


class RefusedError(Exception):
    """A sync the agent does not start: HTTP 409 with this code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def admit(highest_epoch: int, running: Exchange | None, epoch: int) -> int:
    """The new highest epoch; RefusedError for an epoch from the past or while another sync runs."""
    if epoch < highest_epoch:
        raise RefusedError("stale_epoch", f"epoch {epoch} is older than {highest_epoch}, the highest seen")
    if running is not None:
        raise RefusedError("busy", f"the sync of epoch {running.epoch} to {running.version} is still running")
    return epoch
