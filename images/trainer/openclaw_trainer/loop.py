"""The training loop: from leased samples to an acked version.

    gateway ──lease (long poll)──▶ triage ──▶ step ──▶ checkpoint ──▶ publish ──▶ announce ──▶ ack ──▶ gateway
                                     │          │                     v<N>/       Lease
                                     ├ drop     └ nan: drop           (volume)
                                     ├ all advantages 0: ack, publish nothing
                                     └ all stale and engines refuse our newest version: publish it anew

    beside it, while a batch is held: extend its lease every LEASE_SEC / 3

One batch at a time; nothing here waits for the weight sync. Crash points, each seen by the next start:
before the checkpoint: the leases run out and the samples come again, to weights that never saw them;
after it: the checkpoint names the consumed ids, the start publishes the version if it is missing and acks them.
Torch runs in one worker thread, so that leases are extended and /state answers during a step.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from openclaw_core.config.policy_training import PolicyTraining
from openclaw_core.versions import BASE, Manifest, WeightVersion
from openclaw_core.wire import (
    AckSamples,
    DropSamples,
    ExtendSamples,
    LeaseSamples,
    ReleaseSamples,
    Sample,
    Update,
)
from openclaw_trainer.advantage import advantages
from openclaw_trainer.announce import Announcer
from openclaw_trainer.checkpoint import Checkpoints, Progress
from openclaw_trainer.gateway_client import GatewayClient, GatewayError
from openclaw_trainer.state import State
from openclaw_trainer.step import StepResult
from openclaw_trainer.team import Team
from openclaw_trainer.triage import Triage, triage
from openclaw_trainer.volume import Volume

log = logging.getLogger(__name__)
Result = TypeVar("Result")

LEASE_SEC = 120.0
POLL_SEC = 20.0
_RELEASE_SEC = 3.0


@dataclass(frozen=True)
class Parts:
    """What the loop works with; `base` is the directory of the base model."""

    training: PolicyTraining
    team: Team
    volume: Volume
    checkpoints: Checkpoints
    announcer: Announcer
    gateway: GatewayClient
    state: State
    worker: ThreadPoolExecutor
    base: Path


class TrainingLoop:
    """Owns the progress; call `start` once, then `run`."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._progress = Progress()
        self._version = BASE

    async def start(self) -> None:
        """Resume: next epoch, newest weights published and announced, consumed samples acked."""
        parts, state = self._parts, self._parts.state.numbers
        restored = await self._in_worker(self._restored)
        announced, newest = await parts.announcer.read(), parts.volume.newest()
        stored = await parts.gateway.newest_epoch()
        epochs = (restored.epoch, announced.trainer_epoch, newest.trainer_epoch if newest else 0, stored)
        numbers = (
            restored.version,
            announced.version.number if announced.version else 0,
            parts.volume.highest_number(),
        )
        self._progress = replace(restored, epoch=max(epochs) + 1, version=max(numbers))
        state.trainer_epoch, state.step = self._progress.epoch, self._progress.step
        await parts.announcer.claim(self._progress.epoch)
        await self._in_worker(parts.volume.sweep)
        # After a change of lora.publish the newest version is of the other kind, which engines no longer load.
        other_kind = newest is not None and newest.is_adapter != (parts.training.adapter is not None)
        if newest is not None and not other_kind:
            await self._announce(newest)
            if newest.step > self._progress.step:
                lost = {"resumed_step": self._progress.step, "published_step": newest.step}
                log.warning("steps since the last checkpoint are lost (checkpoint.everySteps > 1)", extra=lost)
        if other_kind or self._progress.step > (newest.step if newest else 0):
            await self._publish()
        if self._progress.consumed:
            await self._ack(self._progress.consumed)
        log.info(
            "trainer starts", extra={"step": state.step, "version": str(self._version), "epoch": state.trainer_epoch}
        )

    def _restored(self) -> Progress:
        saved = self._parts.checkpoints.newest()
        if saved is None:
            return Progress()
        self._parts.team.restore(saved[0])
        return saved[1]

    async def run(self) -> None:
        """Batches for ever."""
        while True:
            self._parts.state.numbers.phase = "waiting"
            await self.one_batch()

    async def one_batch(self) -> None:
        """Lease, train, publish and ack one batch; returns after a poll without one."""
        training = self._parts.training
        leased = await self._parts.gateway.lease(
            LeaseSamples(
                trainer_epoch=self._progress.epoch,
                batch=training.rollout_batch_size,
                min_batch=training.min_batch,
                batch_wait_sec=training.batch_wait_sec,
                lease_sec=LEASE_SEC,
                wait_sec=POLL_SEC,
            )
        )
        if not leased.samples:
            await self._in_worker(self._parts.team.idle)
            return
        started = time.monotonic()
        async with self._kept_leased([sample.id for sample in leased.samples]):
            sorted_out = triage(
                leased.samples,
                step_starts_from=self._version.number,
                training=training,
                consumed=self._progress.consumed,
            )
            await self._settle(sorted_out)
            if sorted_out.kept:
                await self._train(sorted_out.kept, sorted_out.lags, started)
            else:
                self._parts.state.count_batch("empty")
                if "stale" in sorted_out.dropped:
                    await self._supersede_if_bad()

    async def _settle(self, sorted_out: Triage) -> None:
        """Drop what cannot be trained, ack what was."""
        for reason, ids in sorted_out.dropped.items():
            await self._drop(ids, reason)
        if sorted_out.consumed:
            self._parts.state.count_samples("already_trained", len(sorted_out.consumed))
            await self._ack(sorted_out.consumed)

    async def _train(self, samples: list[Sample], lags: list[int], started: float) -> None:
        parts, ids = self._parts, [sample.id for sample in samples]
        scores = [float(sample.score) for sample in samples]
        signals, baseline = advantages(parts.training.advantage, scores, self._progress.baseline)
        if not any(signals):
            # Nothing to learn: the baseline remembers the batch, the weights and their version stay.
            self._progress = replace(self._progress, baseline=baseline)
            parts.state.count_batch("zero_advantage")
            parts.state.count_samples("zero_advantage", len(ids))
            await self._ack(ids)
            return
        parts.state.numbers.phase = "training"
        result = await self._stepped(samples, signals, lags)
        if not result.applied:
            log.error("a loss or gradient is not finite: batch skipped", extra={"ids": ids, "loss": str(result.loss)})
            parts.state.count_batch("nan")
            await self._drop(ids, "nan")
            return
        self._progress = replace(self._progress, step=self._progress.step + 1, baseline=baseline, consumed=tuple(ids))
        await self._checkpoint()
        await self._publish()
        await self._ack(ids)
        self._record(samples, lags, result, time.monotonic() - started)
        await self._delete_released()

    async def _stepped(self, samples: list[Sample], signals: Sequence[float], lags: list[int]) -> StepResult:
        """The step in the worker thread. A shutdown in the middle gives the samples back."""
        try:
            return await self._in_worker(lambda: self._parts.team.step(samples, signals, lags))
        except asyncio.CancelledError:
            release = ReleaseSamples(trainer_epoch=self._progress.epoch, ids=[sample.id for sample in samples])
            with contextlib.suppress(GatewayError, TimeoutError):
                await asyncio.wait_for(self._parts.gateway.release(release), _RELEASE_SEC)
            raise

    async def _checkpoint(self) -> None:
        if self._progress.step % self._parts.training.checkpoint.every_steps == 0:
            progress = self._progress
            parts = self._parts
            await self._in_worker(lambda: parts.checkpoints.save(parts.team.snapshot(), progress))

    async def _publish(self) -> None:
        """Write the present weights as the next version and announce it."""
        parts, progress = self._parts, self._progress
        parts.state.numbers.phase = "publishing"
        number = progress.version + 1
        manifest = await self._in_worker(
            lambda: parts.volume.publish(
                number,
                epoch=progress.epoch,
                step=progress.step,
                weights=parts.team.export(),
                base=parts.base,
                lora=parts.training.adapter,
            )
        )
        self._progress = replace(progress, version=number)
        await self._announce(manifest)

    async def _supersede_if_bad(self) -> None:
        """A version that failed twice is not tried again: without a new one, engines sample stale turns for ever."""
        if str(self._version) in (await self._parts.announcer.weight_sync()).bad_versions:
            log.warning("engines failed to take the newest version", extra={"version": str(self._version)})
            await self._publish()

    async def _announce(self, manifest: Manifest) -> None:
        version: WeightVersion = manifest.version()
        await self._parts.announcer.announce(version, manifest.digest(), self._progress.epoch)
        self._version = version
        self._parts.state.numbers.version = str(version)

    async def _ack(self, ids: Sequence[int]) -> None:
        request = AckSamples(trainer_epoch=self._progress.epoch, ids=list(ids), version=str(self._version))
        await self._parts.gateway.ack(request)

    async def _drop(self, ids: list[int], reason: str) -> None:
        self._parts.state.count_samples(reason, len(ids))
        request = DropSamples(trainer_epoch=self._progress.epoch, ids=ids, reason=reason)
        await self._parts.gateway.drop(request)

    async def _delete_released(self) -> None:
        releasable = (await self._parts.announcer.weight_sync()).releasable
        keep = self._version.number
        gone = await self._in_worker(lambda: self._parts.volume.delete(releasable, keep=keep))
        if gone:
            log.info("deleted released versions", extra={"numbers": gone})

    def _record(self, samples: list[Sample], lags: list[int], result: StepResult, seconds: float) -> None:
        state, progress = self._parts.state, self._progress
        state.numbers.step = progress.step
        state.count_batch("trained")
        state.count_samples("trained", len(samples))
        update = Update(
            step=progress.step,
            version=str(self._version),
            samples=len(samples),
            reward_mean=sum(sample.score for sample in samples) / len(samples),
            loss=result.loss,
            lag_mean=sum(lags) / len(lags),
            lag_max=max(lags),
            logprob_abs_diff=result.logprob_abs_diff,
            logprob_abs_diff_fresh=result.logprob_abs_diff_fresh,
            grad_norm=result.grad_norm,
            seconds=seconds,
            finished_at=time.time(),
        )
        state.record(update, result, lags)
        log.info("step", extra=update.model_dump())

    @contextlib.asynccontextmanager
    async def _kept_leased(self, ids: list[int]) -> AsyncIterator[None]:
        """Extend the lease beside the body. A failure to do so is raised when the body is through."""
        extending = asyncio.create_task(self._extend_for_ever(ids))
        try:
            yield
        finally:
            extending.cancel()
            await asyncio.wait([extending])
        if not extending.cancelled():
            extending.result()

    async def _extend_for_ever(self, ids: list[int]) -> None:
        request = ExtendSamples(trainer_epoch=self._progress.epoch, ids=ids, lease_sec=LEASE_SEC)
        while True:
            await asyncio.sleep(LEASE_SEC / 3)
            await self._parts.gateway.extend(request)

    async def _in_worker(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._parts.worker, work)
