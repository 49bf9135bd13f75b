"""Numbers of the running loop, asked from gateway, trainer and judge at most every 10 s per training.

A component that does not answer leaves its last numbers standing; readiness is judged from pods, not from here. A
training of which nobody answers is asked more and more seldom (`periodic`).
"""

import asyncio
import logging
from dataclasses import dataclass, field, replace
from typing import TypeVar

import aiohttp
from pydantic import BaseModel, ValidationError

from openclaw_core import names
from openclaw_core.status import Samples
from openclaw_core.status import Training as TrainingNumbers
from openclaw_core.wire import JudgeState, Stats, TrainerState

log = logging.getLogger(__name__)
POLL_EVERY_SEC = 10.0
_TIMEOUT = aiohttp.ClientTimeout(total=3)
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Telemetry:
    """Last answers; None = never answered."""

    stats: Stats | None = None
    trainer: TrainerState | None = None
    judges: tuple[JudgeState, ...] = ()
    answered: bool = field(default=False, compare=False)
    """Somebody answered the last poll."""


@dataclass(frozen=True)
class Sources:
    """Where to ask: pod IPs by component, and the gateway's internal token."""

    gateways: tuple[str, ...] = ()
    trainers: tuple[str, ...] = ()
    judges: tuple[str, ...] = ()
    gateway_token: str = field(default="", repr=False)

    def __bool__(self) -> bool:
        return bool(self.gateways or self.trainers or self.judges)

    def one(self) -> "Sources":
        """A single one of them: whether anybody is there again costs one question."""
        if self.gateways:
            return replace(self, gateways=self.gateways[:1], trainers=(), judges=())
        return replace(self, trainers=self.trainers[:1], judges=() if self.trainers else self.judges[:1])


async def poll(session: aiohttp.ClientSession, sources: Sources, last: Telemetry) -> Telemetry:
    """Ask every source once, in parallel."""
    bearer = {"Authorization": f"Bearer {sources.gateway_token}"}
    internal, trainer, judge = names.PORT_GATEWAY_INTERNAL, names.PORT_TRAINER, names.PORT_JUDGE
    stats = _first(session, sources.gateways, f":{internal}/internal/stats", Stats, bearer)
    state = _first(session, sources.trainers, f":{trainer}/state", TrainerState, {})
    judges = asyncio.gather(*(_ask(session, f"http://{ip}:{judge}/state", JudgeState, {}) for ip in sources.judges))
    told, trained, judged = await asyncio.gather(stats, state, judges)
    heard = tuple(found for found in judged if found is not None)
    return replace(
        last,
        stats=told or last.stats,
        trainer=trained or last.trainer,
        judges=heard,
        answered=told is not None or trained is not None or bool(heard),
    )


async def _first(
    session: aiohttp.ClientSession, hosts: tuple[str, ...], rest: str, model: type[M], headers: dict[str, str]
) -> M | None:
    for host in hosts:
        answer = await _ask(session, f"http://{host}{rest}", model, headers)
        if answer is not None:
            return answer
    return None


async def _ask(session: aiohttp.ClientSession, url: str, model: type[M], headers: dict[str, str]) -> M | None:
    try:
        async with session.get(url, headers=headers, timeout=_TIMEOUT) as response:
            if response.status != 200:
                return None
            return model.model_validate_json(await response.read())
    except (aiohttp.ClientError, TimeoutError, ValidationError) as error:
        log.debug("no answer from %s: %s", url, error)
        return None


def numbers(telemetry: Telemetry, previous: TrainingNumbers | None) -> TrainingNumbers | None:
    """`status.training`: what is known now, and before it what was reported last; None before anything answered.

    An operator or a trainer that has just started must not take the step and the last reward from the columns.
    """
    found = _of_trainer(telemetry.trainer) | _of_store(telemetry.stats)
    if not found:
        return previous
    return (previous or TrainingNumbers()).model_copy(update=found)


def _of_trainer(trainer: TrainerState | None) -> dict[str, object]:
    if trainer is None:
        return {}
    resumed = {} if trainer.phase in ("starting", "waiting_for_model") else {"step": trainer.step}
    if not trainer.updates:
        return {"phase": trainer.phase, **resumed}
    last = trainer.updates[-1]
    drift = _rounded(last.logprob_abs_diff)
    measured = {"reward_mean": _rounded(last.reward_mean), "rollout_logprob_abs_diff": drift}
    return {"phase": trainer.phase, **resumed, **measured}


def _of_store(stats: Stats | None) -> dict[str, object]:
    if stats is None:
        return {}
    return {"capacity": stats.capacity, "samples": _samples(stats), "refused": dict(stats.refused)}


def _samples(stats: Stats) -> Samples:
    waiting = stats.waiting
    return Samples(
        served=stats.served,
        recorded=stats.recorded,
        untracked=sum(stats.untracked.values()),
        trained=stats.trained,
        dropped=sum(stats.dropped.values()),
        dropped_by=dict(stats.dropped),
        queued=stats.queued,
        leased=stats.leased,
        waiting=waiting.generating + waiting.next_state + waiting.judge,
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def fresh_drift(telemetry: Telemetry) -> float | None:
    """Masked mean |log π_old − log π_rollout| over samples of lag 0 of the newest step that had any."""
    updates = telemetry.trainer.updates if telemetry.trainer else []
    found = [update.logprob_abs_diff_fresh for update in updates if update.logprob_abs_diff_fresh is not None]
    return found[-1] if found else None
