"""Whether a turn was lost: what the user was answered beside what the gateway's store has and counts."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from examples.quickstart.accounts import identity_residues
from openclaw_core.wire import Stats
from tests.faults.fault_bed import Bed

TOLD_SEC = 10.0
_FINISHED = "select session from turns where state = 'dropped' and reason = 'final'"
"""Answered to the end, in a session of which nothing more is to come: how each of the client's turns has to end."""


def lost(answered: Iterable[str], finished: Iterable[str], stats: Stats) -> int:
    """Answers without a turn that ended as they did, and what the accounting identity does not account for."""
    return len(set(answered) - set(finished)) + sum(abs(residue) for residue in identity_residues(stats))


async def lost_turns(bed: Bed) -> int:
    """Of those answered since the last call. A gateway that does not tell its accounts loses one more."""
    answered = bed.client.take_answered()  # first: what was answered by now, the store had by then
    try:
        stats: Stats = await bed.until("the gateway tells its accounts", bed.stats, TOLD_SEC)
    except TimeoutError:
        return 1
    return lost(answered, finished_sessions(bed.experience / "experience.db"), stats)


def finished_sessions(database: Path) -> set[str]:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)) as store:
        return {session for (session,) in store.execute(_FINISHED)}
