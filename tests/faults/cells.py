"""The fault matrix's cells: which there are, what is kept of each, how it is judged, and the page they make."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults.client import ATTEMPT_SEC, Silence
from tests.faults.fault_bed import PAUSE_TIMEOUT_SEC
from tests.faults.parts import ACK_SEC, PREPARE_SEC, UPDATE_SEC

ACTORS = ("operator", "trainer", "gateway", "engine", "agent", "API server")
STATES = ("Idle", "Preparing", "Pausing", "Updating", "Releasing")
FAULTS = ("kill -9", "hang", "partition")
FAULT_SEC = 12.0
"""Longer than the pause timeout: what hangs is not back before the hold ends by itself."""
REPLY_SLACK_SEC = 2.0
Key = tuple[str, str, str]
"""Actor, state, fault."""
EVERY: tuple[Key, ...] = tuple((actor, state, fault) for fault in FAULTS for actor in ACTORS for state in STATES)
SUBSET: tuple[Key, ...] = (
    ("operator", "Preparing", "kill -9"),
    ("operator", "Updating", "kill -9"),
    ("operator", "Updating", "hang"),
    ("operator", "Releasing", "partition"),
    ("trainer", "Preparing", "kill -9"),
    ("gateway", "Pausing", "hang"),
    ("gateway", "Updating", "kill -9"),
    ("engine", "Updating", "kill -9"),
    ("engine", "Updating", "hang"),
    ("agent", "Updating", "kill -9"),
    ("agent", "Updating", "partition"),
    ("API server", "Updating", "kill -9"),
)
VERDICTS = ("stuck", "lost", "diverged", "missed")
FINE = ("ok", "n/a")


@dataclass(frozen=True)
class Cell:
    actor: str
    state: str
    fault: str
    result: str
    """ok, or what was wrong: stuck, lost, diverged, missed (never struck); n/a."""
    silence_sec: float = 0.0
    """Longest time without an answer to the client."""
    converged_sec: float = 0.0
    """From the fault to every engine serving the version."""

    @property
    def key(self) -> Key:
        return self.actor, self.state, self.fault


def impossible(actor: str, fault: str) -> bool:
    """SGLang and its agent share a pod, and so the pod's veth: cutting that is the agent's partition."""
    return actor == "engine" and fault == "partition"


# ---------------------------------------------------------------- judging


def in_time(silences: Sequence[Silence], actor: str, fault: str, gone_sec: float) -> bool:
    """Whether the client was answered as soon as promised. `gone_sec`: its only gateway was not there for so long.

    Nobody can tell a request that a stopped engine holds from a long answer: it is the client's to give up, and the
    next one may be given to the same engine until three probes of 5 s went without answer. So there the 503 alone has
    the common bound, and the rest may last as long as the engine was stopped.
    """
    bound = PAUSE_TIMEOUT_SEC + REPLY_SLACK_SEC + gone_sec
    if (actor, fault) == ("engine", "hang"):
        held = FAULT_SEC + REPLY_SLACK_SEC
        return all(silence.refused <= bound and silence.held <= held for silence in silences)
    return all(silence.whole <= bound for silence in silences)


def verdict(*, lost: int, converged: bool, answered: bool) -> str:
    """`answered`: in the end, and in time."""
    wrong = {"diverged": not converged, "stuck": not answered, "lost": lost > 0}
    return " ".join(word for word, is_so in wrong.items() if is_so) or "ok"


def passed(cells: Sequence[Cell], chosen: Collection[Key]) -> bool:
    """All that were chosen ended, and nothing that did was wrong, in an earlier run neither."""
    return all(cell.result in FINE for cell in cells) and not missing(cells, chosen)


def missing(cells: Sequence[Cell], wanted: Collection[Key] = EVERY) -> list[Key]:
    there = {cell.key for cell in cells}
    return [key for key in wanted if key not in there]


# ---------------------------------------------------------------- keeping and showing


def kept(file: Path | None) -> list[Cell]:
    """Cells of earlier runs, as `--keep` noted them."""
    if file is None or not file.exists():
        return []
    return [Cell(**json.loads(line)) for line in file.read_text().splitlines()]


def table(cells: Sequence[Cell]) -> str:
    """Markdown: a row for each process and fault, a column for each state."""
    found = {cell.key: cell for cell in cells}
    lines = [f"| | fault | {' | '.join(STATES)} |", f"| --- | --- |{' --- |' * len(STATES)}"]
    for actor in ACTORS:
        for fault in FAULTS:
            words = [_words(found.get((actor, state, fault))) for state in STATES]
            if any(words):
                lines.append(f"| {actor} | {fault} | {' | '.join(words)} |")
    return "\n".join(lines) + "\n"


def _words(cell: Cell | None) -> str:
    if cell is None:
        return ""
    return (
        cell.result if cell.result == "n/a" else f"{cell.result}, {cell.silence_sec:.1f} s, {cell.converged_sec:.1f} s"
    )


def summary(cells: Sequence[Cell]) -> dict[str, int]:
    ran = [cell for cell in cells if cell.result != "n/a"]
    return {"cells": len(ran)} | {word: sum(word in cell.result for cell in ran) for word in VERDICTS}


PAGE = f"""# Faults of the weight sync

Every process, struck in every state of a sync, on a real API server with the real operator, gateway and sync agents,
two fake engines, and a stand-in of a few lines for the trainer: it writes and announces versions like the real one but
trains nothing, so its rows say only what becomes of a sync when its publisher is gone. So that each state can be
struck, a preparation takes {PREPARE_SEC:g} s longer than it would, a gateway's word {ACK_SEC:g} s and an engine's
update {UPDATE_SEC:g} s, and the rule that holds take at most a tenth of any ten minutes is switched off.

`pauseTimeoutSec` {PAUSE_TIMEOUT_SEC}. `kill -9`: started again after a second. Hang (SIGSTOP) and partition (nft on the
veth) last {FAULT_SEC:.0f} s. A cell gives the verdict, the longest time the client had no answer, and the time from the
fault until every engine served the version. ok: every engine came to serve it, and

- every question was answered, each answer's turn is in the experience store as finished, and the store's accounts add
  up (else lost); nobody judges or trains these turns: each is the only one of its session;
- no answer took longer than `pauseTimeoutSec` + {REPLY_SLACK_SEC:.0f} s, or than that and the time for which the
  gateway itself, the client's only one, was gone (else stuck). Of an engine that hangs, the 503 keeps that bound; the
  rest may last as long as the hang, + {REPLY_SLACK_SEC:.0f} s: a request that a stopped engine holds looks like a long
  answer and is its client's to give up (here after {ATTEMPT_SEC:.0f} s), and the gateway takes a silent engine out of
  its choice after three probes of 5 s, which is later than the hang ends.

n/a: SGLang and its agent share a pod, and so a veth; the agent's row tells what cutting it does. Written by
`python tests/faults/matrix.py --write` on two cores that were shared with other work; on a machine so busy that the
operator cannot renew its lead in 10 s, fleets converge later.
"""
