"""`kubectl port-forward` as a supervised child: started again when it dies, so one URL works all the time.

The local port is chosen by the first start and kept, so clients need not be told of a restart.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from examples.quickstart.commands import Cluster, StepError

_LINE = re.compile(rb"Forwarding from 127\.0\.0\.1:(\d+) -> (\d+)")
_START_WITHIN_SEC = 60.0
_AGAIN_AFTER_SEC = 1.0


class Forward:
    """Local URLs of some ports of one Service or pod (`svc/name`, `pod/name`)."""

    def __init__(self, cluster: Cluster, namespace: str, target: str, ports: tuple[int, ...]) -> None:
        self._cluster, self._namespace, self._target = cluster, namespace, target
        self._local: dict[int, int] = dict.fromkeys(ports, 0)
        self._process: asyncio.subprocess.Process | None = None
        self._ready = asyncio.Event()

    async def ready(self, timeout_sec: float = _START_WITHIN_SEC) -> None:
        """Until the ports listen. StepError when they do not in time."""
        try:
            async with asyncio.timeout(timeout_sec):
                await self._ready.wait()
        except TimeoutError as error:
            raise StepError(f"kubectl port-forward {self._target} does not come up") from error

    def is_ready(self) -> bool:
        return self._ready.is_set()

    def url(self, port: int) -> str:
        return f"http://127.0.0.1:{self._local[port]}"

    async def keep(self) -> None:
        """Run for ever: start, wait for its end, start again."""
        try:
            while True:
                await self._once()
                self._ready.clear()
                await asyncio.sleep(_AGAIN_AFTER_SEC)
        finally:
            await self._end()

    async def _once(self) -> None:
        pairs = [f"{local or ''}:{port}" for port, local in self._local.items()]
        line = self._cluster.kubectl_line(
            "-n", self._namespace, "port-forward", "--address", "127.0.0.1", self._target, *pairs
        )
        self._process = await asyncio.create_subprocess_exec(
            *line,
            env=self._cluster.environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        seen: set[int] = set()
        async for raw in self._process.stdout:
            if match := _LINE.search(raw):
                self._local[int(match.group(2))] = int(match.group(1))
                seen.add(int(match.group(2)))
                if seen == set(self._local):
                    self._ready.set()
        await self._process.wait()

    async def _end(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            with suppress(TimeoutError):
                async with asyncio.timeout(3):
                    await self._process.wait()
                return
            self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def forwarded(cluster: Cluster, namespace: str, target: str, *ports: int) -> AsyncIterator[Forward]:
    """A forward that lives as long as the block. Does not wait for it to be ready."""
    forward = Forward(cluster, namespace, target, ports)
    keeper = asyncio.create_task(forward.keep(), name=f"port-forward {target}")
    try:
        yield forward
    finally:
        keeper.cancel()
        with suppress(asyncio.CancelledError):
            await keeper
