"""A thin client of the one SGLang this agent started: control routes with the admin key, nothing decided here."""

import asyncio
import json
from typing import Any

import aiohttp

from openclaw_core.wire import TensorSpec, TransferPlan

PAUSE_MODES = {"retract": "retract", "drain": "retract", "abort": "abort"}
"""`inFlight` of the spec to SGLang's pause mode; drain waits first, then retracts what is left."""

ADAPTERS_ROUTE = "/openclaw/adapters"
"""Ours, added to SGLang's application by `launch`."""

_DIRTY = "cache was not flushed"


_RANKS = " | "
"""Between what each data-parallel rank says, in one message."""


class SglangError(Exception):
    """SGLang refused, answered nonsense, or did not answer. `message`: its own words, if it said any."""

    def __init__(self, text: str, message: str = "") -> None:
        super().__init__(text)
        self.message = message


class MixedRanksError(SglangError):
    """Data-parallel ranks disagree: some did as they were told, some did not."""


class Sglang:
    """SGLang's HTTP surface, as far as the agent uses it. Every call is bounded by `timeout` seconds."""

    def __init__(self, session: aiohttp.ClientSession, url: str, admin_key: str) -> None:
        self._session, self._url = session, url
        self._headers = {"Authorization": f"Bearer {admin_key}"}

    async def is_ready(self) -> bool:
        """True: serving. False: starting, paused, unhealthy or not there."""
        try:
            async with self._session.get(f"{self._url}/ready", timeout=_limit(5.0)) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def weight_version(self, timeout: float = 5.0) -> str:
        return str((await self._call("GET", "/model_info", timeout))["weight_version"])

    async def server_version(self) -> str:
        return str((await self._call("GET", "/server_info", 30.0))["version"])

    async def running_requests(self) -> int:
        """Requests running or queued inside SGLang."""
        loads = (await self._call("GET", "/v1/loads?include=core", 5.0))["loads"]
        return sum(int(load["num_running_reqs"]) + int(load["num_waiting_reqs"]) for load in loads)

    async def checksum(self, timeout: float) -> str:
        """Digest over all weights on all ranks."""
        answer = await self._call("POST", "/weights_checker", timeout, {"action": "checksum"})
        if not answer.get("per_engine_checksum"):
            raise SglangError(f"/weights_checker gave no checksum: {answer.get('message')}")
        return str(answer["per_engine_checksum"])

    async def pause(self, in_flight: str, timeout: float) -> None:
        await self._call("POST", "/pause_generation", timeout, {"mode": PAUSE_MODES[in_flight]})

    async def resume(self, timeout: float) -> None:
        await self._call("POST", "/continue_generation", timeout, {})

    async def update(self, directory: str, version: str, timeout: float) -> str:
        """Load `directory` as `version`; SGLang's words. An unflushed prefix cache counts as success."""
        body = {"model_path": directory, "weight_version": version, "flush_cache": True}
        try:
            answer = await self._call("POST", "/update_weights_from_disk", timeout, body)
        except SglangError as error:
            if mixed_ranks(error.message):
                raise MixedRanksError(str(error)) from error
            if _DIRTY in str(error):
                return str(error)
            raise
        return str(answer.get("message", ""))

    async def join_group(self, plan: TransferPlan, group: str, host: str, timeout: float) -> None:
        """Have every rank join the sender's group, called `group` from here on; returns when all members are in."""
        body = {
            "master_address": host,
            "master_port": plan.port,
            "rank_offset": plan.rank_offset,
            "world_size": plan.world_size,
            "group_name": group,
            "backend": plan.backend,
        }
        await self._call("POST", "/init_weights_update_group", timeout, body)

    async def leave_group(self, group: str, timeout: float) -> None:
        await self._call("POST", "/destroy_weights_update_group", timeout, {"group_name": group})

    async def begin_weight_update(self, timeout: float) -> None:
        await self._call("POST", "/begin_weight_update", timeout, {})

    async def end_weight_update(self, timeout: float) -> None:
        await self._call("POST", "/end_weight_update", timeout, {})

    async def receive(self, group: str, bucket: list[TensorSpec], version: str | None, timeout: float) -> None:
        """Take part in the broadcast of these tensors and load them; `version` with the last ones."""
        body = {
            "names": [tensor.name for tensor in bucket],
            "dtypes": [tensor.dtype for tensor in bucket],
            "shapes": [tensor.shape for tensor in bucket],
            "group_name": group,
            "flush_cache": version is not None,
            "weight_version": version,
        }
        try:
            await self._call("POST", "/update_weights_from_distributed", timeout, body)
        except SglangError as error:
            if _DIRTY not in str(error):
                raise

    async def adapters(self, timeout: float = 5.0) -> dict[str, int]:
        """LoRA adapters that are loaded, and how many requests use each (`launch.show_adapters`)."""
        answer = await self._call("GET", ADAPTERS_ROUTE, timeout)
        return {str(name): int(users) for name, users in answer.items()}

    async def load_adapter(self, name: str, directory: str, timeout: float) -> None:
        """Load the adapter in `directory` beside those that are there; running requests go on."""
        await self._call("POST", "/load_lora_adapter", timeout, {"lora_name": name, "lora_path": directory})

    async def unload_adapter(self, name: str, timeout: float) -> None:
        await self._call("POST", "/unload_lora_adapter", timeout, {"lora_name": name})

    async def freeze_gc(self) -> None:
        """SGLang does this itself after its warm-up, but without the key it does not know."""
        await self._call("POST", "/freeze_gc", 10.0, {})

    async def _call(self, method: str, path: str, timeout: float, body: dict[str, Any] | None = None) -> dict[str, Any]:
        try:
            async with self._session.request(
                method, self._url + path, json=body, headers=self._headers, timeout=_limit(timeout)
            ) as response:
                return await _answer(path, response)
        except TimeoutError as error:
            raise SglangError(f"{path} did not answer within {timeout:.1f} s") from error
        except aiohttp.ClientError as error:
            raise SglangError(f"{path} failed: {error}") from error


async def wait_idle(sglang: Sglang, timeout: float, interval: float = 0.05) -> None:
    """Return when nothing runs any more; SglangError after `timeout` seconds."""
    try:
        async with asyncio.timeout(timeout):
            while await sglang.running_requests() > 0:  # noqa: ASYNC110 - another process; nothing signals us
                await asyncio.sleep(interval)
    except TimeoutError as error:
        raise SglangError(f"turns were still running after {timeout:.1f} s") from error


async def _answer(path: str, response: aiohttp.ClientResponse) -> dict[str, Any]:
    text = await response.text()
    answer = _parsed(text) if response.content_type.endswith("json") else {}
    if response.status != 200 or answer.get("success") is False:
        raise SglangError(f"{path} answered {response.status}: {text[:500]}", str(answer.get("message", "")))
    return answer


def _parsed(text: str) -> dict[str, Any]:
    """One answer; that of several ranks, given as a list, in the form SGLang gives it in one message."""
    try:
        answer = json.loads(text)
    except ValueError:
        return {}
    if isinstance(answer, list) and answer and all(isinstance(rank, dict) for rank in answer):
        words = _RANKS.join(str(rank.get("message", "")) for rank in answer)
        return {"success": all(rank.get("success") for rank in answer), "message": words}
    return answer if isinstance(answer, dict) else {}


def mixed_ranks(message: str) -> bool:
    """Does a failed update's message say that some of several ranks took it? An unflushed cache counts as taken."""
    took = [part.startswith("Succe") or _DIRTY in part for part in message.split(_RANKS)]
    return any(took) and not all(took)


def _limit(seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=seconds, sock_connect=min(seconds, 5.0))
