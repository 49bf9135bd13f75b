"""The sync agent: starts SGLang, exchanges its weights when told to, and never leaves it paused.

    start ─▶ SGLang ready ─▶ (target moved meanwhile? exchange) ─▶ serving
                                                                     │
    POST /sync ─▶ admit ─▶ queue (one) ─▶ exchange: check, then the steps of `machine` ─▶ answer ─▶ confirm (checksum)
    every second  ─▶ watch: target file, and SGLang paused without a sync ─▶ continue
    SGLang's exit ─▶ ends the process, and so the container

The operator decides when to sync; a target that differs from the loaded version is only shown in `state`.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

from openclaw_core import versions
from openclaw_core.versions import VersionFormatError, WeightVersion
from openclaw_core.wire import AgentState, Prepare, Prepared, Retain, Sync, Synced, Transfer
from openclaw_engine import machine, target
from openclaw_engine.epochs import EpochFile
from openclaw_engine.loaded import ContradictionError, Loaded
from openclaw_engine.machine import Exchange, Step
from openclaw_engine.manifest import IncompleteVersionError, Volume
from openclaw_engine.metrics import Metrics
from openclaw_engine.sglang import MixedRanksError, Sglang, SglangError, wait_idle
from openclaw_engine.staging import EXCHANGED, Stager, StagingError
from openclaw_engine.transfer import Receiver, TransferError

logger = logging.getLogger(__name__)

START_LIMIT_SEC = 3600.0
"""Longest start of SGLang: a large model from a slow volume, or a download from the hub."""

_CHECKSUM_LIMIT_SEC = 60.0
_PREPARE_LIMIT_SEC = 600.0
"""The operator waits no longer for a preparation."""
CHECK_SHARE = 0.9
"""Of the time until the deadline: what the check of the files may take, so that the operator hears that it failed."""
_STAGE_LIMIT_SEC = 300.0
_TRANSFER_SHARE = 0.5
"""Of the time until the deadline: what a transfer may take, and its clean-up half as long again; the rest is for
reading the volume after it failed."""
_WATCH_SEC = 1.0
_START_POLL_SEC = 0.5
_RETRY_CONTINUE_SEC = 0.2
_UNREADY_LIMIT_SEC = 60.0


class EngineLostError(RuntimeError):
    """SGLang's state is unknown or it stays paused; only a restart of the container helps."""


class Agent:
    """State and loops of one sync agent. `clock` is monotonic seconds."""

    def __init__(
        self,
        sglang: Sglang,
        volume: Volume,
        *,
        base_location: str,
        in_flight: str,
        target_file: Path,
        epochs: EpochFile,
        metrics: Metrics,
        receiver: Receiver | None = None,
        stager: Stager | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._receiver, self._stager = receiver, stager
        self._unstaged = ""
        """Why the last version could not be staged."""
        self._transfer: Transfer | None = None
        """Where the running sync's weights may come from instead of the volume."""
        self._source: Literal["volume", "sender", "spare"] = "volume"
        """Where the weights of the running sync came from; spare: the second set, into which they were read ahead."""
        self._sglang, self._volume, self._metrics, self._clock = sglang, volume, metrics, clock
        self._base_location, self._in_flight = base_location, in_flight
        self._target_file = target_file
        self._loaded = Loaded()
        self._up = False
        self._epochs = epochs
        self._highest_epoch = epochs.read()
        self._measuring = False
        self._exchange: Exchange | None = None
        self._not_ready_since: float | None = None
        self._server_version: str | None = None
        self._target: WeightVersion | None = None
        self._starting: str | None = None
        """Version SGLang was started with; once it is up, the target that moved meanwhile."""
        self._error: str | None = None
        self._missing_model: str | None = None
        self._queue: asyncio.Queue[tuple[Sync, asyncio.Future[Synced]]] = asyncio.Queue(maxsize=1)

    # ------------------------------------------------------------ what the HTTP edge calls

    @property
    def ready(self) -> bool:
        """A version is loaded. Pauses do not change it."""
        return self._up

    def state(self) -> AgentState:
        return AgentState(
            version=str(self._loaded.version) if self._up else None,
            target=str(self._target) if self._target else None,
            ready=self.ready,
            paused=self._exchange is not None and self._exchange.paused,
            highest_epoch=self._highest_epoch,
            phase=self._phase(),
            starting=None if self._up else self._starting,
            sglang_version=self._server_version,
            checksum=self._loaded.checksum,
            error=self._missing_model or self._error,
        )

    def _phase(self) -> Literal["starting", "waiting_for_model", "syncing", "loading", "serving"]:
        """`loading`: SGLang serves, but reads all its weights once more, and an update would have to wait for that."""
        if self._missing_model:
            return "waiting_for_model"
        if not self.ready:
            return "starting"
        if self._exchange is not None:
            return "syncing"
        return "loading" if self._measuring else "serving"

    def waits_for_model(self, words: str | None) -> None:
        """SGLang cannot start yet, because of `words`; None: it starts."""
        self._missing_model = words

    def starts_with(self, version: str) -> None:
        """SGLang is going to load the files of `version`."""
        self._starting = version

    async def prepare(self, request: Prepare) -> Prepared:
        """Check a version, warm the page cache, and have SGLang read it ahead; the engine keeps serving."""
        began = self._clock()
        try:
            version = WeightVersion.parse(request.version)
            await self._stage(version, await self._location(version, _PREPARE_LIMIT_SEC))
            error = None
        except (IncompleteVersionError, VersionFormatError) as problem:
            error = str(problem)
        seconds = self._clock() - began
        self._metrics.prepare.observe(seconds)
        return Prepared(version=request.version, ready=error is None, error=error, seconds=seconds)

    async def _stage(self, version: WeightVersion, location: str) -> None:
        """Have it read into the second set of weights. What is not is read in the pause, so no failure counts."""
        if self._stager is None or not self.ready or self._exchange is not None or version == self._loaded.version:
            return
        try:
            await self._stager.stage(location, _STAGE_LIMIT_SEC)
        except StagingError as problem:
            self._metrics.staging_failures.inc()
            if str(problem) != self._unstaged:
                self._unstaged = str(problem)
                logger.warning("version is not staged", extra={"version": str(version), "error": self._unstaged})

    def retain(self, _: Retain) -> AgentState:
        """Whole weights: there is never a second version beside the loaded one."""
        return self.state()

    async def sync(self, request: Sync) -> Synced:
        """Exchange the weights; RefusedError for an old epoch, while another sync runs, or while SGLang starts."""
        if not self.ready:
            raise machine.RefusedError("starting", "SGLang is still starting; it loads the target by itself")
        highest = machine.admit(self._highest_epoch, self._exchange, request.epoch)
        if highest > self._highest_epoch:
            self._epochs.write(highest)
        self._highest_epoch = highest
        self._exchange = self._new_exchange(request)
        answer: asyncio.Future[Synced] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((request, answer))
        return await asyncio.shield(answer)

    # ------------------------------------------------------------ loops

    async def run(self) -> None:
        """Bring SGLang up, then serve syncs one after another, for ever."""
        await self._start()
        while True:
            request, answer = await self._queue.get()
            try:
                answer.set_result(await self._execute(request))
            except EngineLostError as loss:
                answer.set_result(Synced(epoch=request.epoch, version=request.version, ok=False, error=str(loss)))
                raise
            await self._confirm()

    async def watch(self) -> None:
        """Follow the target file, and end every pause that belongs to no sync."""
        while True:
            self._target = target.read(self._target_file)
            if self.ready and self._exchange is None:
                await self._check_serving()
            await asyncio.sleep(_WATCH_SEC)

    # ------------------------------------------------------------ start

    async def _start(self) -> None:
        await self._wait_for_sglang()
        self._server_version = await self._sglang.server_version()
        await self._sglang.freeze_gc()
        self._loaded.moved_to(WeightVersion.parse(await self._sglang.weight_version()))
        await self._confirm()
        self._target = target.read(self._target_file)
        if self._target is not None and self._target != self._loaded.version:
            await self._load_target_at_start(self._target)
        self._up = True
        self._metrics.ready.set(1)
        logger.info("engine is up", extra={"version": str(self._loaded.version), "sglang": self._server_version})

    async def _wait_for_sglang(self) -> None:
        """Return once SGLang serves. A pause found here would last for ever, so it is ended as well."""
        async with asyncio.timeout(START_LIMIT_SEC):
            while not await self._sglang.is_ready():
                with contextlib.suppress(SglangError):
                    await self._sglang.resume(5.0)
                await asyncio.sleep(_START_POLL_SEC)

    async def _load_target_at_start(self, wanted: WeightVersion) -> None:
        """The target moved while SGLang started, or could not be read then. Serving an older one beats serving none."""
        self.starts_with(str(wanted))
        synced = await self._execute(Sync(epoch=self._highest_epoch, version=str(wanted), deadline_sec=120.0))
        if not synced.ok:
            logger.error("target could not be loaded at start", extra={"target": str(wanted), "error": synced.error})
        await self._confirm()

    # ------------------------------------------------------------ one exchange

    def _new_exchange(self, request: Sync) -> Exchange:
        now = self._clock()
        return Exchange(
            epoch=request.epoch,
            version=request.version,
            began=now,
            deadline=now + request.deadline_sec,
            drain=self._in_flight == "drain",
        )

    async def _execute(self, request: Sync) -> Synced:
        exchange = self._exchange = self._exchange or self._new_exchange(request)
        self._transfer, self._source = request.transfer, "volume"
        try:
            if str(self._loaded.version) == request.version:
                return Synced(epoch=request.epoch, version=request.version, ok=True)
            exchange = await self._exchange_weights(exchange)
        finally:
            self._exchange = None
        return await self._report(exchange)

    async def _exchange_weights(self, exchange: Exchange) -> Exchange:
        """Check the version, then take steps until DONE. EngineLostError when SGLang stays paused."""
        location, limit = None, CHECK_SHARE * machine.time_limit(exchange, Step.UPDATE, self._clock())
        try:
            location = await self._location(WeightVersion.parse(exchange.version), limit)
        except (IncompleteVersionError, VersionFormatError) as problem:
            exchange = machine.after(exchange, Step.UPDATE, exchange.began, self._clock(), str(problem))
        while (step := machine.next_step(exchange, self._clock())) is not Step.DONE:
            if step is Step.LOST:
                raise EngineLostError(f"SGLang could not be continued after the sync to {exchange.version}")
            exchange = self._exchange = await self._take(step, exchange, location or "")
        return exchange

    async def _take(self, step: Step, exchange: Exchange, location: str) -> Exchange:
        began, error = self._clock(), None
        try:
            await self._perform(step, exchange, location, machine.time_limit(exchange, step, began))
        except SglangError as problem:
            error = str(problem)
            exchange = machine.mixed(exchange) if isinstance(problem, MixedRanksError) else exchange
            logger.warning("sync step failed", extra={"step": step, "epoch": exchange.epoch, "error": error})
            if step is Step.CONTINUE:
                await asyncio.sleep(_RETRY_CONTINUE_SEC)
        return machine.after(exchange, step, began, self._clock(), error)

    async def _perform(self, step: Step, exchange: Exchange, location: str, limit: float) -> None:
        actions: dict[Step, Callable[[], Awaitable[object]]] = {
            Step.DRAIN: lambda: wait_idle(self._sglang, limit),
            Step.PAUSE: lambda: self._sglang.pause(self._in_flight, limit),
            Step.UPDATE: lambda: self._update(location, exchange, limit),
            Step.VERIFY: lambda: self._verify(exchange.version, limit),
            Step.CONTINUE: lambda: self._sglang.resume(limit),
        }
        await actions[step]()

    async def _update(self, location: str, exchange: Exchange, limit: float) -> None:
        """From the trainer's sender where the sync names one, else and after any failure from the volume."""
        began = self._clock()
        if self._transfer is not None and self._receiver is not None and exchange.version != str(versions.BASE):
            try:
                await self._receiver.receive(self._transfer, exchange.epoch, exchange.version, limit * _TRANSFER_SHARE)
                self._source = "sender"
                return
            except TransferError as problem:
                self._metrics.transfer_failures.inc()
                logger.warning("transfer failed, reading the volume", extra={"error": str(problem)})
        said = await self._sglang.update(location, exchange.version, max(limit - (self._clock() - began), 0.001))
        self._source = "spare" if EXCHANGED in said else "volume"

    async def _verify(self, version: str, limit: float) -> None:
        reported = await self._sglang.weight_version(limit)
        if reported != version:
            raise SglangError(f"SGLang reports version {reported} after the update to {version}")

    async def _report(self, exchange: Exchange) -> Synced:
        self._error = machine.outcome(exchange)
        self._metrics.syncs.labels("ok" if exchange.ok else "failed").inc()
        self._metrics.pause.observe(exchange.pause_sec)
        self._metrics.update.observe(exchange.update_sec)
        if exchange.mixed:
            raise EngineLostError(f"only some data-parallel ranks took {exchange.version}: {exchange.error}")
        if exchange.ok:
            self._move_to(WeightVersion.parse(exchange.version))
        elif exchange.paused_at is not None:
            await self._settle()
        synced = Synced(
            epoch=exchange.epoch,
            version=str(self._loaded.version),
            ok=exchange.ok,
            error=self._error,
            pause_sec=round(exchange.pause_sec, 6),
            update_sec=round(exchange.update_sec, 6),
            transferred=exchange.ok and self._source == "sender",
            staged=exchange.ok and self._source == "spare",
        )
        logger.info("weight sync ended", extra=synced.model_dump())
        return synced

    async def _settle(self) -> None:
        """After a failed exchange: which version is loaded now?

        The checksum is asked for first: SGLang answers it after an update that is still running, and only then is the
        version it reports final.
        """
        try:
            checksum = await self._sglang.checksum(_CHECKSUM_LIMIT_SEC)
            self._move_to(WeightVersion.parse(await self._sglang.weight_version()))
        except SglangError as problem:
            raise EngineLostError(f"nothing is known of SGLang after the failed sync: {problem}") from problem
        self._measured(checksum)

    async def _confirm(self) -> None:
        """Do the weights in SGLang's memory follow from the version's files? Outside the pause: it takes a while."""
        if self._loaded.checksum is not None:
            return
        self._measuring = True
        try:
            self._measured(await self._sglang.checksum(_CHECKSUM_LIMIT_SEC))
        except SglangError as problem:
            logger.warning("checksum of the weights is unknown", extra={"error": str(problem)})
        finally:
            self._measuring = False

    def _measured(self, checksum: str) -> None:
        try:
            self._loaded.measured(checksum, self._volume.differ)
        except ContradictionError as contradiction:
            raise EngineLostError(str(contradiction)) from contradiction

    # ------------------------------------------------------------ parts

    async def _location(self, version: WeightVersion, limit: float) -> str:
        """Where SGLang loads a version from; IncompleteVersionError when it is not whole, or not known to be in time.

        The thread that waits for a volume whose server is gone is left behind; it ends with the wait.
        """
        if version == versions.BASE:
            return self._base_location
        try:
            async with asyncio.timeout(limit):
                return str(await asyncio.to_thread(self._volume.check, version))
        except TimeoutError as error:
            raise IncompleteVersionError(
                f"the weights volume said nothing about {version} for {limit:.1f} s"
            ) from error

    def _move_to(self, version: WeightVersion) -> None:
        self._loaded.moved_to(version)
        self._metrics.version.set(version.number)

    async def _check_serving(self) -> None:
        """End a pause that belongs to no sync; EngineLostError when SGLang stays unready."""
        if await self._sglang.is_ready():
            self._not_ready_since = None
            return
        now = self._clock()
        self._not_ready_since = self._not_ready_since or now
        if now - self._not_ready_since > _UNREADY_LIMIT_SEC:
            raise EngineLostError(f"SGLang has not been ready for {_UNREADY_LIMIT_SEC:.0f} s outside a sync")
        if self._exchange is None:
            await self._end_stray_pause()

    async def _end_stray_pause(self) -> None:
        try:
            await self._sglang.resume(5.0)
        except SglangError as problem:
            logger.warning("SGLang is not ready and could not be continued", extra={"error": str(problem)})
            return
        self._metrics.resumed.inc()
        logger.warning("SGLang was paused outside a sync and was continued")
