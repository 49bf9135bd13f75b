"""What SGLang holds in memory, as far as the agent knows: a version, and the checksum that goes with it. Pure."""

from collections.abc import Callable
from dataclasses import dataclass

from openclaw_core.versions import WeightVersion

Differ = Callable[[WeightVersion | None, WeightVersion], bool | None]
"""Do two versions' files hold different weights? None: unknown."""


class ContradictionError(RuntimeError):
    """The weights in memory do not follow from the files of the version SGLang reports."""


@dataclass
class Loaded:
    """`checksum` is None from a move until the next measurement."""

    version: WeightVersion | None = None
    checksum: str | None = None
    before: tuple[WeightVersion | None, str | None] = (None, None)
    """Version and checksum before the last move."""

    def moved_to(self, version: WeightVersion) -> None:
        if self.checksum is not None:
            self.before = (self.version, self.checksum)
        self.version, self.checksum = version, None

    def measured(self, checksum: str, differ: Differ) -> None:
        """Keep the checksum; ContradictionError when it changed although the files did not, or the other way round."""
        assert self.version is not None
        version, known = self.before
        expected = differ(version, self.version) if version != self.version else False
        if known is not None and expected is not None and expected != (checksum != known):
            raise ContradictionError(f"the weights in SGLang's memory are not those of {self.version}")
        self.checksum = checksum
