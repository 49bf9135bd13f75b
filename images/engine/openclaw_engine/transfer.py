"""A version from the trainer's sender instead of the volume: join the sync's group, receive every bucket, leave.

    sender: join ─▶ SGLang: init group ─▶ begin ─▶ receive bucket by bucket ─▶ end ─▶ destroy group
                       └────── any failure: end, destroy, and TransferError; the caller then reads the volume ──┘

Called while SGLang is paused. A failure in the middle leaves weights of two versions in memory, so after a
TransferError something whole must be loaded before SGLang goes on.
"""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

import aiohttp
from pydantic import ValidationError

from openclaw_core.wire import JoinTransfer, Transfer, TransferPlan
from openclaw_engine.sglang import Sglang, SglangError
from openclaw_engine.transfer_group import limited

_WAIT_SHARE = 0.5
"""Of a transfer's time: the longest that SGLang, deaf to all else, waits for one tensor or for a group to form."""
_WAIT_SEC = 10.0
"""And no longer than that: a sender that runs gives up a tensor sooner (`openclaw_trainer.sender`)."""


class TransferError(Exception):
    """The weights did not all arrive."""


@dataclass(frozen=True)
class Receiver:
    """One engine's side. `ranks`: processes of its SGLang."""

    session: aiohttp.ClientSession
    sglang: Sglang
    engine: str
    ranks: int
    device: Literal["cuda", "cpu"]

    async def receive(self, transfer: Transfer, epoch: int, version: str, limit: float) -> None:
        """All of `version` within `limit` seconds, or TransferError, at most half as long again after that."""
        try:
            async with asyncio.timeout(limit):
                plan = await self._join(transfer, epoch, version)
                await self._through(plan, transfer.url, version, limit)
        except TimeoutError as error:
            raise TransferError(f"the transfer took longer than {limit:.1f} s") from error
        except (aiohttp.ClientError, ValidationError, SglangError) as error:
            raise TransferError(str(error) or type(error).__name__) from error

    async def _join(self, transfer: Transfer, epoch: int, version: str) -> TransferPlan:
        body = JoinTransfer(
            epoch=epoch,
            version=version,
            engine=self.engine,
            ranks=self.ranks,
            engines=transfer.engines,
            device=self.device,
        )
        async with self.session.post(f"{transfer.url}/transfers", data=body.model_dump_json()) as response:
            text = await response.text()
            if response.status != 200:
                raise TransferError(f"the sender answered {response.status}: {text[:200]}")
            return TransferPlan.model_validate_json(text)

    async def _through(self, plan: TransferPlan, url: str, version: str, limit: float) -> None:
        """From joining the group to leaving it; left in any case.

        Should SGLang still hang when the time is over, it does what it was told meanwhile, in that order, once its own
        wait ends. So the two orders that clean up share one such wait.
        """
        wait = min(limit * _WAIT_SHARE, _WAIT_SEC)
        group = limited(plan.group, wait)
        try:
            await self.sglang.join_group(plan, group, urlsplit(url).hostname or "", limit)
            await self.sglang.begin_weight_update(limit)
            for index, bucket in enumerate(plan.buckets):
                last = index == len(plan.buckets) - 1
                await self.sglang.receive(group, bucket, version if last else None, limit)
            await self.sglang.end_weight_update(limit)
        except BaseException:
            with contextlib.suppress(SglangError):
                await self.sglang.end_weight_update(wait / 2)
            raise
        finally:
            with contextlib.suppress(SglangError):
                await self.sglang.leave_group(group, wait / 2)
