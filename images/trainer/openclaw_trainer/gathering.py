"""Which engines share one transfer: those that ask for the same sync within the wait. Pure but for asyncio's clock.

join ─▶ the first opens the gathering ─▶ closed when `engines` have asked, or GATHER_SEC after the first ─▶ ranks
"""

import asyncio
from dataclasses import dataclass, field

from openclaw_core.wire import JoinTransfer

GATHER_SEC = 2.0
"""How long the first engine waits for the others; submissions are paused meanwhile."""


class TooLateError(RuntimeError):
    """The transfer of this sync has begun without the caller, or a newer sync's has."""


@dataclass
class Gathering:
    """The engines of one sync. Rank 0 is the sender, engines follow in the order in which they asked."""

    epoch: int
    version: str
    members: list[JoinTransfer] = field(default_factory=list)
    full: asyncio.Event = field(default_factory=asyncio.Event)
    closed: bool = False

    def add(self, member: JoinTransfer) -> int:
        """The member's rank offset; TooLateError once closed, or when it has asked before."""
        if self.closed or any(known.engine == member.engine for known in self.members):
            raise TooLateError(f"the transfer of epoch {self.epoch} has begun without {member.engine}")
        offset = self.world_size
        self.members.append(member)
        if len(self.members) >= member.engines:
            self.full.set()
        return offset

    @property
    def world_size(self) -> int:
        return 1 + sum(member.ranks for member in self.members)

    @property
    def backend(self) -> str:
        """NCCL only between GPUs."""
        return "nccl" if all(member.device == "cuda" for member in self.members) else "gloo"

    async def wait(self) -> None:
        """Until everybody is here, or nobody else is waited for."""
        try:
            async with asyncio.timeout(GATHER_SEC):
                await self.full.wait()
        except TimeoutError:
            pass
        self.closed = True
