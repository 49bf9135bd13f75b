"""Counts turns between their pause check and the last byte of their request to an engine.

A pause is acknowledged to the operator when this count is zero: nothing admitted before is still unsent, and nothing
more will be sent, for the check comes first.
"""

import asyncio


class Departure:
    """One request on its way; `sent` may be called from the HTTP client's trace, and again at its end."""

    def __init__(self, owner: "Departures") -> None:
        self._owner: Departures | None = owner

    def sent(self) -> None:
        if self._owner is not None:
            self._owner.leave()
            self._owner = None


class Departures:
    def __init__(self) -> None:
        self.unsent = 0
        self._none = asyncio.Event()
        self._none.set()

    def enter(self) -> Departure:
        self.unsent += 1
        self._none.clear()
        return Departure(self)

    def leave(self) -> None:
        self.unsent -= 1
        if self.unsent == 0:
            self._none.set()

    async def all_sent(self, timeout_sec: float) -> bool:
        """False when some are still unsent after the timeout."""
        try:
            async with asyncio.timeout(timeout_sec):
                await self._none.wait()
        except TimeoutError:
            return False
        return True
