"""The agent's side of staging: tell every rank of SGLang to read a version beside the one it serves."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

ENV_DIRECTORY = "OPENCLAW_STAGING_DIR"
"""Directory with the socket of every rank, named to SGLang's processes."""
OK = "ok"
SILENCE_SEC = 5.0
"""A rank that carries out an order says so every second; a new version must not wait for one that hangs."""
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
            raise StagingError(f"a rank said nothing for {SILENCE_SEC:.0f} s, or took over {limit:.0f} s") from error
        except OSError as error:
            raise StagingError(f"a rank does not listen: {error}") from error
        if refusals := [answer for answer in answers if answer != OK]:
            raise StagingError(refusals[0] or "a rank ended")


async def _order(path: Path, location: str) -> str:
    """The rank's last word, after empty lines while it works. TimeoutError when it hangs, or was stopped."""
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(f"{location}\n".encode())
        while line := await asyncio.wait_for(reader.readline(), SILENCE_SEC):
            if word := line.decode().strip():
                return word
        return ""
    finally:
        writer.close()
