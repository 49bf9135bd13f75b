"""The SGLang process: started in its own process group, given the admin key through a pipe, ended with its children."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence

_TERM_GRACE_SEC = 15.0


class SglangEndedError(RuntimeError):
    """SGLang is gone; the container ends with it and Kubernetes starts both again."""


class SglangProcess:
    """One SGLang. Its output goes to this process's own streams, unread."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, arguments: Sequence[str], environment: Mapping[str, str], admin_key: str) -> "SglangProcess":
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "openclaw_engine.launch", *arguments),
            env=dict(environment),
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(f"{admin_key}\n".encode())
        process.stdin.close()
        return cls(process)

    async def watch(self) -> None:
        """Raise SglangEndedError when SGLang ends, whatever its exit status."""
        status = await self._process.wait()
        raise SglangEndedError(f"SGLang ended with status {status}")

    async def stop(self) -> None:
        """End the whole process group: politely, then not. Returns within the grace period and a moment."""
        if self._signal_group(signal.SIGTERM):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), _TERM_GRACE_SEC)
        self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: signal.Signals) -> bool:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return False
        return True
