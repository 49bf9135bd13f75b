"""When each engine was told to update and when it said that it had, as the operator's own connections show it.

Not the engine's word: the order's way there and the answer's way back are in it, as they are in the window.
"""

import time
from types import SimpleNamespace

import aiohttp

from bench.stand_ins import Row

SYNC = "/sync"


class Orders:
    """Give `trace()` to the session that the operator's loop uses."""

    def __init__(self) -> None:
        self._rows: list[Row] = []

    def take(self) -> list[Row]:
        """Orders that were answered since the last call; their epochs are not known here."""
        taken, self._rows = self._rows, []
        return taken

    def trace(self) -> aiohttp.TraceConfig:
        config = aiohttp.TraceConfig()
        config.on_request_start.append(self._begins)
        config.on_request_end.append(self._ended)
        return config

    async def _begins(
        self, _: aiohttp.ClientSession, context: SimpleNamespace, asked: aiohttp.TraceRequestStartParams
    ) -> None:
        context.began = time.monotonic() if asked.url.path == SYNC else None

    async def _ended(
        self, _: aiohttp.ClientSession, context: SimpleNamespace, answered: aiohttp.TraceRequestEndParams
    ) -> None:
        if context.began is not None and answered.response.status == 200:
            self._rows.append(Row(0, context.began, time.monotonic()))
