"""Whether a turn was lost: the clients' count of answers against the gateway's accounts. Pure."""

from dataclasses import dataclass

from openclaw_core.wire import Stats


@dataclass(frozen=True)
class Accounts:
    """Both sides of the books after everybody stopped talking."""

    answered: int
    """Answers the clients read to their end."""
    failed: int
    """Requests that broke off: the gateway may or may not have served those."""
    stats: Stats

    def lost(self) -> int:
        """Turns one side knows and the other does not, plus what the identity does not account for. 0 = none."""
        return self.unserved() + sum(abs(residue) for residue in identity_residues(self.stats))

    def unserved(self) -> int:
        """Distance of `served` from what clients saw: [answered, answered + failed]."""
        served = self.stats.served
        return max(0, self.answered - served, served - self.answered - self.failed)


def identity_residues(stats: Stats) -> tuple[int, int]:
    """(served − recorded − Σ untracked, recorded − trained − Σ dropped − queued − leased − Σ waiting); (0, 0) holds."""
    waiting = stats.waiting.generating + stats.waiting.next_state + stats.waiting.judge
    return (
        stats.served - stats.recorded - sum(stats.untracked.values()),
        stats.recorded - stats.trained - sum(stats.dropped.values()) - stats.queued - stats.leased - waiting,
    )
