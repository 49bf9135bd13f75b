"""Engines and gateways for the bench of the weight sync, each kind in a process of its own, answering at once.

What is measured is the operator and the API server, so these cost next to nothing: a few lines of HTTP/1.1 with
keep-alive instead of a web framework, and no logic but the contract. A gateway notes, on the machine's monotonic clock,
the first word of each epoch's hold and of its release, by post or by Lease watch, whichever is first; an engine notes
the begin and the end of its update.
"""

import asyncio
import contextlib
import gc
import multiprocessing
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from openclaw_core import kube, names
from openclaw_core.kube import Kube
from openclaw_core.leases import parse_weight_sync
from openclaw_core.versions import BASE
from openclaw_core.wire import AgentState, Paused, PausedAck, Prepare, Prepared, Sync, Synced

LEASES = "coordination.k8s.io/v1"
Answer = Callable[[str, bytes], Awaitable[str]]


class Row(NamedTuple):
    """A gateway's window or an engine's update; seconds of the machine's monotonic clock."""

    epoch: int
    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class _Http(asyncio.Protocol):
    """Requests one after another on a kept connection; nothing else of HTTP is spoken here."""

    def __init__(self, answer: Answer) -> None:
        self._answer, self._buffer = answer, b""
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        first, *headers = head.decode("latin-1").split("\r\n")
        sizes = [line.split(":")[1] for line in headers if line.lower().startswith("content-length:")]
        size = int(sizes[0]) if sizes else 0
        if len(rest) >= size:
            self._buffer = rest[size:]
            task = asyncio.get_running_loop().create_task(self._reply(first.split(" ")[1], rest[:size]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _reply(self, path: str, body: bytes) -> None:
        text = (await self._answer(path, body)).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
        self._transport.write(head.encode() + text)


@dataclass
class Agent:
    """A sync agent whose engine takes `update_sec`."""

    update_sec: float
    rows: list[Row]
    version: str = str(BASE)
    highest: int = 0

    async def answer(self, path: str, body: bytes) -> str:
        if path == "/prepare":
            return Prepared(version=Prepare.model_validate_json(body).version, ready=True).model_dump_json()
        if path == "/sync":
            return await self._sync(Sync.model_validate_json(body))
        return AgentState(
            version=self.version, target=None, ready=True, paused=False, highest_epoch=self.highest, phase="serving"
        ).model_dump_json()

    async def _sync(self, asked: Sync) -> str:
        began = time.monotonic()
        await asyncio.sleep(self.update_sec)
        self.version, self.highest = asked.version, asked.epoch
        row = Row(asked.epoch, began, time.monotonic())
        self.rows.append(row)
        return Synced(epoch=asked.epoch, version=asked.version, ok=True, pause_sec=row.seconds).model_dump_json()


@dataclass
class Gateway:
    """Notes the first word of each epoch's hold and release."""

    name: str
    rows: list[Row]
    held: dict[int, float] = field(default_factory=dict)
    released: set[int] = field(default_factory=set)

    async def answer(self, _: str, body: bytes) -> str:
        told = Paused.model_validate_json(body)
        self.note(told.epoch, held=told.lease_sec > 0)
        return PausedAck(
            epoch=told.epoch, pod_uid=self.name, process_start=0.0, paused=told.lease_sec > 0
        ).model_dump_json()

    def note(self, epoch: int, *, held: bool) -> None:
        moment = time.monotonic()
        if held and epoch not in self.held and epoch not in self.released:
            self.held[epoch] = moment
        elif not held and epoch in self.held and epoch not in self.released:
            self.released.add(epoch)
            self.rows.append(Row(epoch, self.held[epoch], moment))

    async def watch(self, api: Kube, namespace: str, lease: str) -> None:
        collection, only = kube.path(LEASES, "leases", namespace), f"metadata.name={lease}"
        while True:
            listed = await api.list(collection, field_selector=only)
            version = listed["metadata"]["resourceVersion"]
            async for _, found in api.watch(collection, field_selector=only, resource_version=version):
                if "spec" in found:
                    state = parse_weight_sync(found)
                    self.note(state.epoch, held=state.hold is not None)


# ---------------------------------------------------------------- processes


@dataclass(frozen=True)
class Engines:
    """What the engines' process runs: one agent on each address."""

    addresses: tuple[str, ...]
    update_sec: float

    async def run(self, rows: list[Row], up: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        for address in self.addresses:
            answer = Agent(self.update_sec, rows).answer
            await loop.create_server(lambda answer=answer: _Http(answer), address, names.PORT_AGENT)  # type: ignore[misc]
        up()
        await asyncio.Event().wait()


@dataclass(frozen=True)
class Gateways:
    """What the gateways' process runs: one gateway on each address, watching the Lease."""

    addresses: tuple[str, ...]
    kubeconfig: dict[str, Any]
    namespace: str
    lease: str

    async def run(self, rows: list[Row], up: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        gateways = [Gateway(address, rows) for address in self.addresses]
        for gateway in gateways:
            answer = gateway.answer
            await loop.create_server(
                lambda answer=answer: _Http(answer),  # type: ignore[misc]
                gateway.name,
                names.PORT_GATEWAY_INTERNAL,
            )
        async with Kube.from_kubeconfig(self.kubeconfig) as api, asyncio.TaskGroup() as tasks:
            for gateway in gateways:
                tasks.create_task(gateway.watch(api, self.namespace, self.lease))
            await asyncio.sleep(1.0)
            up()


@dataclass
class Process:
    """A running process of stand-ins."""

    pipe: Connection

    def rows(self) -> list[Row]:
        """What was noted since the last call."""
        self.pipe.send("rows")
        found: list[Row] = self.pipe.recv()
        return found


@contextmanager
def process(work: Engines | Gateways) -> Iterator[Process]:
    """Run `work` in a process of its own until the block ends."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_child, args=(work, theirs), daemon=True)
    child.start()
    try:
        if not ours.poll(60):
            raise TimeoutError(f"{type(work).__name__} did not come up")
        ours.recv()
        yield Process(ours)
    finally:
        child.terminate()
        child.join(5)


def _child(work: Engines | Gateways, pipe: Connection) -> None:
    asyncio.run(_serve(work, pipe))


async def _serve(work: Engines | Gateways, pipe: Connection) -> None:
    rows: list[Row] = []
    working = asyncio.create_task(work.run(rows, lambda: pipe.send("up")))

    def asked() -> None:
        try:
            pipe.recv()
            pipe.send(rows.copy())
            rows.clear()
        except (EOFError, OSError):  # the bench is gone, however it ended
            working.cancel()

    gc.freeze()
    asyncio.get_running_loop().add_reader(pipe.fileno(), asked)
    with contextlib.suppress(asyncio.CancelledError):
        await working
