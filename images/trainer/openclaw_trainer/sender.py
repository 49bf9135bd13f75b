"""The sender: a process beside rank 0 that broadcasts a version to the engines of a sync when they ask for it.

    engines ──POST /transfers──▶ gathering ──▶ plan to each engine
                                     └──▶ worker thread: load, make the group, broadcast, leave     (≤ TRANSFER_SEC)

A process of its own, because a group that failed or hangs cannot be taken down otherwise: engines wait in it, deaf to
everything else, until its connections close or their own limit is reached. So a failed transfer ends the process at
once; the trainer starts it again, and the engines read the volume instead. One transfer at a time; a newer sync's joins
are refused while an older one's runs. `python -m openclaw_trainer.sender`.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, TypeVar

import torch
from aiohttp import web
from pydantic import ValidationError

from openclaw_core import logs, names
from openclaw_core.wire import JoinTransfer, TransferPlan
from openclaw_trainer.broadcast import Group, Snapshot, UnknownVersionError
from openclaw_trainer.gathering import Gathering, TooLateError

log = logging.getLogger(__name__)
Result = TypeVar("Result")
TRANSFER_SEC = 60.0
"""Longest transfer, the making of its group included. Engines give up sooner, with their sync."""
GROUP_SEC = 5.0
"""Longest making of a group, and longest wait for one tensor's receivers."""


class Sender:
    """Serves one training's weights from `root`; `end` ends the process."""

    def __init__(self, root: Path, device: Literal["cuda", "cpu"], end: Callable[[], None]) -> None:
        self._root, self._device, self._end = root, device, end
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="transfer")
        self._gathering: Gathering | None = None
        self._planned: asyncio.Future[tuple[Group, Snapshot]] | None = None
        self._snapshot: Snapshot | None = None
        self._sending: asyncio.Task[None] | None = None
        self.sent = 0

    async def join(self, request: JoinTransfer) -> TransferPlan:
        """The plan of the sync's transfer. TooLateError, UnknownVersionError, or OSError when no port is free."""
        gathering = self._gathering
        if gathering is None or (gathering.epoch, gathering.version) != (request.epoch, request.version):
            if self._busy():
                raise TooLateError("another transfer is under way")
            gathering = self._gathering = Gathering(request.epoch, request.version)
            self._planned = asyncio.ensure_future(self._plan(gathering))
        offset = gathering.add(request)
        assert self._planned is not None
        group, snapshot = await asyncio.shield(self._planned)
        return TransferPlan(
            group=group.name,
            port=group.port,
            backend="nccl" if group.backend == "nccl" else "gloo",
            rank_offset=offset,
            world_size=gathering.world_size,
            buckets=snapshot.buckets(),
        )

    def _busy(self) -> bool:
        planning = self._planned is not None and not self._planned.done()
        return planning or (self._sending is not None and not self._sending.done())

    async def _plan(self, gathering: Gathering) -> tuple[Group, Snapshot]:
        loaded, _ = await asyncio.gather(self._in_worker(lambda: self._load(gathering.version)), gathering.wait())
        backend = gathering.backend if self._device == "cuda" else "gloo"
        name = f"sync-{gathering.epoch}-{os.getpid()}-{self.sent}"
        group = await self._in_worker(lambda: Group(name, backend, gathering.world_size, GROUP_SEC))
        self._sending = asyncio.create_task(self._send(group, loaded))
        return group, loaded

    def _load(self, version: str) -> Snapshot:
        if self._snapshot is None or self._snapshot.version != version:
            self._snapshot = None  # the old one's memory goes first
            self._snapshot = Snapshot.load(self._root, version)
        return self._snapshot

    async def _send(self, group: Group, snapshot: Snapshot) -> None:
        """Bounded. A failure or a hang ends this process: that wakes whoever waits in the group."""
        try:
            async with asyncio.timeout(TRANSFER_SEC):
                await self._in_worker(lambda: _broadcast(group, snapshot))
            self.sent += 1
            log.info("version sent", extra={"version": snapshot.version, "group": group.name})
        except (TimeoutError, RuntimeError) as error:  # RuntimeError: what torch.distributed raises
            words = {"version": snapshot.version, "error": str(error)[:300] or "it took too long"}
            log.warning("transfer failed, the sender ends", extra=words)
            self._end()

    def _in_worker(self, work: Callable[[], Result]) -> "asyncio.Future[Result]":
        return asyncio.get_running_loop().run_in_executor(self._worker, work)


def _broadcast(group: Group, snapshot: Snapshot) -> None:
    try:
        group.join()
        group.send(list(snapshot.tensors.values()))
    finally:
        group.close()


def build(sender: Sender) -> web.Application:
    async def join(request: web.Request) -> web.Response:
        try:
            plan = await sender.join(JoinTransfer.model_validate_json(await request.read()))
        except ValidationError as error:
            return _refusal(400, str(error))
        except UnknownVersionError as error:
            return _refusal(404, str(error))
        except TooLateError as error:
            return _refusal(409, str(error))
        return web.Response(text=plan.model_dump_json(), content_type="application/json")

    application = web.Application()
    application.add_routes([web.post("/transfers", join)])
    return application


def _refusal(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "code": str(status)}}, status=status)


def main() -> None:
    logs.configure(names.TRAINER)
    torch.set_num_threads(1)
    root = Path(os.environ.get("OPENCLAW_WEIGHTS_DIR", names.WEIGHTS_DIR))
    device: Literal["cuda", "cpu"] = "cuda" if os.environ.get("OPENCLAW_SENDER_DEVICE") == "cuda" else "cpu"
    port = int(os.environ.get("OPENCLAW_SENDER_PORT", names.PORT_SENDER))
    web.run_app(build(Sender(root, device, lambda: os._exit(1))), port=port, access_log=None, print=None)


if __name__ == "__main__":
    main()
