"""The highest epoch this pod has seen, kept across restarts of the container: an order from the past stays refused.

The file lies in the pod's own scratch volume, which goes with the pod. It has to outlive this process, not the node, so
nothing is flushed: the write is over in microseconds, inside a pause.
"""

import logging
from pathlib import Path

logger = logging.getLogger(__name__)


class EpochFile:
    """One number in a file, replaced whole."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> int:
        """0 when there is none yet, or nothing one could read (logged)."""
        try:
            return max(0, int(self._path.read_text()))
        except FileNotFoundError:
            return 0
        except (OSError, ValueError) as error:
            logger.error("highest epoch is unreadable, starting at 0", extra={"error": str(error)})
            return 0

    def write(self, epoch: int) -> None:
        """A failure is logged: an engine without scratch space is better updated than left behind."""
        fresh = self._path.with_suffix(".new")
        try:
            fresh.write_text(str(epoch))
            fresh.replace(self._path)
        except OSError as error:
            logger.error("highest epoch is not kept", extra={"epoch": epoch, "error": str(error)})
