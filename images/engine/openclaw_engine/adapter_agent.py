"""The sync agent where versions are LoRA adapters: a new one is loaded beside the others, nothing is ever paused.

    POST /sync ─▶ check files ─▶ load under the version's own name ─▶ listed by SGLang? ─▶ answer
    POST /retain ─▶ remember what else may stay;   every second ─▶ unload what may not, once no request uses it

A request names its adapter, so the gateway decides which version answers; the version this agent calls its own is
the one it was told last. SGLang unloads in two acts, and between them refuses other loads until the last user of the
adapter is done: so an adapter is unloaded only when it has no user. One that is asked for once more after that is
loaded again by SGLang itself, under its name, from the same files.
"""

import logging
from collections.abc import Mapping
from typing import Any

from openclaw_core import versions
from openclaw_core.versions import VersionFormatError, WeightVersion
from openclaw_core.wire import AgentState, Retain, Sync, Synced
from openclaw_engine.agent import CHECK_SHARE, Agent
from openclaw_engine.manifest import IncompleteVersionError
from openclaw_engine.sglang import SglangError

logger = logging.getLogger(__name__)

_UNLOAD_LIMIT_SEC = 30.0


class AdapterAgent(Agent):
    """An agent whose SGLang keeps the base model and changes adapters."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._adapters: Mapping[str, int] = {}
        """Adapters SGLang lists and the requests that use each; as last seen."""
        self._retained: frozenset[str] | None = None
        """What may stay: the operator's last word, and what this agent served since; None until it said so."""
        self._base_checksum: str | None = None

    def state(self) -> AgentState:
        return super().state().model_copy(update={"adapters": sorted(self._adapters)})

    def retain(self, request: Retain) -> AgentState:
        self._retained = frozenset(request.versions)
        return self.state()

    # ------------------------------------------------------------ loading

    async def _execute(self, request: Sync) -> Synced:
        self._exchange = self._exchange or self._new_exchange(request)
        began, error = self._clock(), None
        try:
            await self._load(WeightVersion.parse(request.version), max(self._exchange.deadline - began, 0.001))
        except (IncompleteVersionError, VersionFormatError, SglangError) as problem:
            error = str(problem)
        finally:
            self._exchange = None
        self._error, seconds = error, self._clock() - began
        self._metrics.syncs.labels("failed" if error else "ok").inc()
        self._metrics.update.observe(seconds)
        version = str(self._loaded.version)
        synced = Synced(
            epoch=request.epoch, version=version, ok=error is None, error=error, update_sec=round(seconds, 6)
        )
        logger.info("adapter swap ended", extra=synced.model_dump())
        return synced

    async def _load(self, version: WeightVersion, limit: float) -> None:
        """Have SGLang hold the adapter, and call it ours. The base needs none."""
        began, name = self._clock(), str(version)
        location = await self._location(version, CHECK_SHARE * limit)
        if version != versions.BASE and name not in await self._sglang.adapters():
            await self._sglang.load_adapter(name, location, max(limit - (self._clock() - began), 0.001))
        self._adapters = await self._sglang.adapters()
        if version != versions.BASE and name not in self._adapters:
            raise SglangError(f"SGLang does not list adapter {name} after loading it")
        if self._retained is not None:
            self._retained |= {str(self._loaded.version)}
        self._move_to(version)

    async def _confirm(self) -> None:
        """The base model's checksum is measured once: no adapter changes it."""
        if self._base_checksum is None:
            await super()._confirm()
            self._base_checksum = self._loaded.checksum
        self._loaded.checksum = self._base_checksum

    # ------------------------------------------------------------ unloading

    async def _check_serving(self) -> None:
        await super()._check_serving()
        try:
            self._adapters = await self._sglang.adapters()
            await self._unload_the_unused()
        except SglangError as problem:
            logger.warning("adapters could not be looked after", extra={"error": str(problem)})

    async def _unload_the_unused(self) -> None:
        if self._retained is None:
            return
        kept = self._retained | {str(self._loaded.version)}
        for name in [name for name, users in self._adapters.items() if users == 0 and name not in kept]:
            await self._sglang.unload_adapter(name, _UNLOAD_LIMIT_SEC)
            logger.info("adapter unloaded", extra={"version": name})
        self._adapters = await self._sglang.adapters()
