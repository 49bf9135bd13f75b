"""The agent's side of staging: tell every rank of SGLang to read a version beside the one it serves."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

ENV_DIRECTORY = "OPENCLAW_STAGING_DIR"
"""Directory with the socket of every rank, named to SGLang's processes."""
OK = "ok"
EXCHANGED = "Succeeded to exchange the staged weights."
"""SGLang's answer to an update that was read ahead."""


class StagingError(Exception):
    """Some rank has not staged the version; it will read it in the pause."""


@dataclass(frozen=True)
class Stager:
    """`directory` holds a socket for every rank that listens (`scheduler`)."""

    directory: Path

    async def stage(self, location: str, limit: float) -> None:
        """Have all ranks stage `location` within `limit` seconds, or StagingError."""
        sockets = sorted(self.directory.glob("*.sock"))
        if not sockets:
            raise StagingError("no rank of SGLang listens")
        try:
            async with asyncio.timeout(limit):
                answers = await asyncio.gather(*(_order(path, location) for path in sockets))
        except TimeoutError as error:
            raise StagingError(f"not staged within {limit:.0f} s") from error
        except OSError as error:
            raise StagingError(f"a rank does not listen: {error}") from error
        if refusals := [answer for answer in answers if answer != OK]:
            raise StagingError(refusals[0] or "a rank ended")


async def _order(path: Path, location: str) -> str:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(f"{location}\n".encode())
        return (await reader.readline()).decode().strip()
    finally:
        writer.close()
