"""The trainer's side of the experience store: calls on the gateway's internal port.

A gateway that is away for a moment is waited for, with backoff and a bound; one that says this trainer is old (409)
is believed at once. Nothing here knows what a sample is good for.
"""

import asyncio
import logging
from types import TracebackType
from typing import Self, TypeVar

import aiohttp
from pydantic import BaseModel, ValidationError

from openclaw_core.wire import (
    Accepted,
    AckSamples,
    DropSamples,
    ExtendSamples,
    LeasedSamples,
    LeaseSamples,
    Message,
    ReleaseSamples,
    Stats,
)
from openclaw_trainer.volume import StaleEpochError

log = logging.getLogger(__name__)
Reply = TypeVar("Reply", bound=BaseModel)

PATIENCE_SEC = 600.0
"""How long a gateway may be away before the trainer gives up (and is started again)."""
_ASK_TIMEOUT = aiohttp.ClientTimeout(total=10.0, sock_connect=5.0)
_SLOWEST_RETRY_SEC = 5.0
_TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})


class GatewayError(RuntimeError):
    """The gateway refused a call for good, or was away for longer than the patience."""


class GatewayClient:
    """One session to one gateway Service. Use as an async context manager."""

    def __init__(self, url: str, token: str, *, patience_sec: float = PATIENCE_SEC) -> None:
        self._url, self._token, self._patience = url.rstrip("/"), token, patience_sec
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(headers={"Authorization": f"Bearer {self._token}"})
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def newest_epoch(self) -> int:
        """Highest trainer epoch the store has seen; 0 when the gateway is away or too old to say.

        Asked at start, while volume and Lease may be new and the store is not. A gateway that is away is not waited
        for: should its store know a higher epoch, the first call with ours is refused, and the next start asks again.
        """
        try:
            async with self._opened().get(f"{self._url}/internal/stats", timeout=_ASK_TIMEOUT) as response:
                response.raise_for_status()
                return Stats.model_validate_json(await response.read()).trainer_epoch
        except (aiohttp.ClientError, TimeoutError, ValidationError) as error:
            log.warning("the store's trainer epoch is unknown", extra={"error": str(error)})
            return 0

    async def lease(self, request: LeaseSamples) -> LeasedSamples:
        """Long poll for one batch; empty when none came together within `wait_sec`."""
        return await self._call("lease", request, LeasedSamples, wait_sec=request.wait_sec)

    async def extend(self, request: ExtendSamples) -> Accepted:
        return await self._call("extend", request, Accepted)

    async def ack(self, request: AckSamples) -> Accepted:
        return await self._call("ack", request, Accepted)

    async def drop(self, request: DropSamples) -> Accepted:
        return await self._call("drop", request, Accepted)

    async def release(self, request: ReleaseSamples) -> Accepted:
        return await self._call("release", request, Accepted)

    async def _call(self, verb: str, request: Message, reply: type[Reply], *, wait_sec: float = 0.0) -> Reply:
        """POST until answered. StaleEpochError on 409, GatewayError on another refusal or lost patience."""
        clock = asyncio.get_running_loop()
        give_up_at, delay = clock.time() + self._patience, 0.2
        while True:
            try:
                return await self._post(verb, request, reply, wait_sec)
            except (aiohttp.ClientError, TimeoutError) as error:
                if isinstance(error, aiohttp.ClientResponseError) and error.status not in _TRANSIENT:
                    raise _refusal(verb, error) from error
                if clock.time() + delay > give_up_at:
                    raise GatewayError(f"samples/{verb}: no answer for {self._patience:.0f} s: {error}") from error
                log.warning("gateway is away", extra={"call": verb, "error": str(error), "retry_in": delay})
            await asyncio.sleep(delay)
            delay = min(2 * delay, _SLOWEST_RETRY_SEC)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("GatewayClient is used outside its `async with` block")
        return self._session

    async def _post(self, verb: str, request: Message, reply: type[Reply], wait_sec: float) -> Reply:
        timeout = aiohttp.ClientTimeout(total=wait_sec + 30.0, sock_connect=5.0)
        body = request.model_dump(mode="json")
        url = f"{self._url}/internal/samples/{verb}"
        async with self._opened().post(url, json=body, timeout=timeout) as response:
            if response.status >= 400:
                text = (await response.text())[:300]
                raise aiohttp.ClientResponseError(
                    response.request_info, response.history, status=response.status, message=text
                )
            return reply.model_validate_json(await response.read())


def _refusal(verb: str, error: aiohttp.ClientResponseError) -> Exception:
    if error.status == 409:
        return StaleEpochError(f"samples/{verb}: {error.message}")
    return GatewayError(f"samples/{verb}: {error.status} {error.message}")
