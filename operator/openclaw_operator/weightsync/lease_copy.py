"""One process's copy of the Lease: what it says as far as anybody knows, and the one call about it under way. No I/O.

A write that fails leaves the content unknown, so it is read before anything else. A write that was given up for lost
may still land, as long as the Lease has the version that it was made for.
"""

from openclaw_core.leases import WeightSyncState
from openclaw_operator.weightsync import model as m


class LeaseCopy:
    """Times are monotonic seconds."""

    def __init__(self) -> None:
        self.content: WeightSyncState | None = None
        """None while it has to be read (again)."""
        self.last: WeightSyncState | None = None
        """The content that was known last."""
        self.best = WeightSyncState()
        """The newest content ever seen: what a Lease that was deleted or garbled is mended from."""
        self.busy = False
        """A read or write is under way."""
        self._version = ""
        self._written_on: str | None = None
        """Version that a write was made for which has no answer yet, or was given up for lost."""
        self._read_after = float("-inf")

    # ------------------------------------------------------------ taking in

    def seen(self, content: WeightSyncState, version: str) -> None:
        """A read or a write of ours was answered."""
        self.busy, self._version = False, version
        self.content = self.last = content
        self._written_on = version if version == self._written_on else None
        if content.epoch >= self.best.epoch:
            self.best = content

    def failed(self, now: float) -> None:
        """A read or write was not answered, or refused."""
        self.busy, self.content, self._read_after = False, None, now + m.RETRY_READ_SEC

    def garbled(self, version: str) -> None:
        """It holds what no writer of ours produces."""
        self.busy, self.content, self._version = False, None, version

    def listed(self, version: str) -> None:
        """Somebody saw it: a write that was given up for lost may have landed, then what we know is old."""
        if version and version != self._version and not self.busy:
            self.content = None

    # ------------------------------------------------------------ asking

    @property
    def may_change_yet(self) -> bool:
        """A write of ours may still land on what is known."""
        return self._written_on is not None

    def read_due(self) -> float | None:
        """When it is to be read, if it is."""
        return self._read_after if self.content is None and not self.busy else None

    def read(self, now: float) -> list[m.Action]:
        """Read it, unless that is under way or failed a moment ago."""
        if self.busy or now < self._read_after:
            return []
        self.busy = True
        return [m.ReadLease()]

    def write(self, content: WeightSyncState) -> m.WriteLease:
        self.busy, self._written_on = True, self._version
        return m.WriteLease(content, self._version)
