"""`python tests/faults/matrix.py`: every process × every state of a weight sync × kill, hang and partition.

Each cell publishes a version, waits for the state, strikes, undoes the fault after 12 s (a killed process is started
again a second later), and asks: does every engine serve the version in the end, does the 503 end, is every client
answered? It runs on a control plane of its own (`fault_bed`); needs root, nft and the programs `make cluster-up` built.
The table goes to stdout and, with `--write`, into docs/faults.md; the last line is JSON: cells, stuck, lost, diverged.
All take an hour on two cores; `--keep FILE` notes each cell there as it ends and goes on behind those it finds in it.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

if __name__ == "__main__" and not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.faults.fault_bed import ENGINES, PAUSE_TIMEOUT_SEC, RESTART_SEC, ROOT, Bed, bed

ACTORS = ("operator", "trainer", "gateway", "engine", "agent", "API server")
STATES = ("Idle", "Preparing", "Pausing", "Updating", "Releasing")
FAULTS = ("kill -9", "hang", "partition")
FAULT_SEC = 12.0
"""Longer than the pause timeout: what hangs is not back before the hold ends by itself."""
CONVERGE_SEC = 75.0
REPLY_SLACK_SEC = 2.0
SUBSET = tuple(
    (actor, state, fault)
    for actor, state, fault in (
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
)


@dataclass(frozen=True)
class Cell:
    actor: str
    state: str
    fault: str
    result: str
    """ok, or what was wrong: stuck, lost, diverged; n/a."""
    silence_sec: float = 0.0
    """Longest time without an answer to the client."""
    converged_sec: float = 0.0
    """From the fault to every engine serving the version."""


def impossible(actor: str, fault: str) -> bool:
    """SGLang and its agent share a pod, and so the pod's veth: cutting that is the agent's partition."""
    return actor == "engine" and fault == "partition"


# ---------------------------------------------------------------- states


class MissedError(TimeoutError):
    """The state was over before it could be struck."""


async def reach(bed: Bed, state: str) -> int:
    """Publish, and return in the middle of `state`; the version's number. TimeoutError when it was missed."""
    if state == "Idle":
        return bed.wanted
    number = bed.publish()
    await bed.until("the version is announced", lambda: _announced(bed, number), 20)
    if state == "Preparing":
        await asyncio.sleep(0.3)
        if await _held(bed):
            raise MissedError("Preparing was over")
        return number
    await bed.until("the hold is there", lambda: _held(bed), 30)
    if state == "Pausing":
        if await _paused(bed):
            raise MissedError("Pausing was over")
        return number
    await bed.until("an engine is updated", lambda: _paused(bed), 10)
    if state == "Releasing":  # the engines end, and the write that says so does not get through
        bed.network.cut("operator", f"tcp dport {bed.plane.port}")
        await asyncio.sleep(1.6)
    return number


async def _paused(bed: Bed) -> bool:
    return "paused" in await bed.engine_versions()


async def _announced(bed: Bed, number: int) -> bool:
    return await bed.published() == number


async def _held(bed: Bed) -> bool:
    lease = await bed.lease()
    return lease is not None and lease.hold is not None


# ---------------------------------------------------------------- faults


async def strike(bed: Bed, actor: str, fault: str) -> None:
    """Do it, and undo it after FAULT_SEC."""
    if fault == "partition":
        _cut(bed, actor)
        await asyncio.sleep(FAULT_SEC)
        for name in _places(actor):
            bed.network.join(name)
        return
    number = signal.SIGKILL if fault == "kill -9" else signal.SIGSTOP
    _signal(bed, actor, number)
    if fault == "hang":
        await asyncio.sleep(FAULT_SEC)
        _signal(bed, actor, signal.SIGCONT)
    elif actor == "API server":
        await asyncio.sleep(1.0)
        bed.plane.running["apiserver"].wait()
        await asyncio.to_thread(bed.plane.start_apiserver)


def _places(actor: str) -> tuple[str, ...]:
    return {
        "agent": (ENGINES[0],),
        "engine": (ENGINES[0],),
        "API server": ("operator", "gateway", "trainer"),
    }.get(actor, (actor,))


def _cut(bed: Bed, actor: str) -> None:
    """A pod's whole veth; of the API server, what everybody else says to it."""
    for name in _places(actor):
        bed.network.cut(name, f"tcp dport {bed.plane.port}" if actor == "API server" else "")


def _signal(bed: Bed, actor: str, number: signal.Signals) -> None:
    if actor == "API server":
        bed.plane.running["apiserver"].send_signal(number)
    elif actor == "engine":
        with contextlib.suppress(ProcessLookupError):
            os.kill(int((bed.folder / f"sglang-{ENGINES[0]}.pid").read_text()), number)
    else:
        bed.parts[ENGINES[0] if actor == "agent" else actor].signal(number)


# ---------------------------------------------------------------- one cell


async def run_cell(bed: Bed, actor: str, state: str, fault: str) -> Cell:
    """From a settled bed to a settled bed."""
    if impossible(actor, fault):
        return Cell(actor, state, fault, "n/a")
    client = bed.client
    lost, began = client.lost, time.monotonic()
    number = await reach(bed, state)
    struck = time.monotonic()
    fault_task = asyncio.create_task(strike(bed, actor, fault))
    away = asyncio.create_task(_gateway_is_back(bed, struck)) if actor == "gateway" and fault == "kill -9" else None
    if state == "Idle":
        await asyncio.sleep(0.5)
        number = bed.publish()
    if state == "Releasing":
        await asyncio.sleep(1.0)
        if not (fault == "partition" and actor in ("operator", "API server")):
            bed.network.join("operator")
    converged = await _converges(bed, number)
    took = time.monotonic() - struck
    await fault_task
    if not converged:
        converged = await _converges(bed, number, 30.0)
    answered = await _answered(bed)
    silence = client.longest_silence(began, time.monotonic())
    gone = await away if away is not None else FAULT_SEC if actor == "gateway" else 0.0
    in_time = silence <= PAUSE_TIMEOUT_SEC + REPLY_SLACK_SEC + gone
    result = _verdict(client.lost - lost, converged, answered, in_time)
    return Cell(actor, state, fault, result, round(silence, 1), round(took, 1))


async def _gateway_is_back(bed: Bed, struck: float) -> float:
    """Seconds that the only gateway was gone for: from the kill until it serves again."""
    await asyncio.sleep(RESTART_SEC)  # what answers before is the one that dies
    await bed.until("the gateway is back", bed.gateway_serves, CONVERGE_SEC)
    return time.monotonic() - struck


def _verdict(lost: int, converged: bool, answered: bool, in_time: bool) -> str:
    faults = [
        word
        for word, wrong in (("diverged", not converged), ("stuck", not (answered and in_time)), ("lost", lost > 0))
        if wrong
    ]
    return " ".join(faults) or "ok"


async def _converges(bed: Bed, number: int, seconds: float = CONVERGE_SEC) -> bool:
    try:
        await bed.until("the fleet serves it", lambda: bed.settled(number), seconds)
    except TimeoutError:
        return False
    return True


async def _answered(bed: Bed) -> bool:
    before = len(bed.client.answers)
    end = time.monotonic() + 15.0
    while time.monotonic() < end and len(bed.client.answers) == before:  # noqa: ASYNC110 - the client tells nobody
        await asyncio.sleep(0.1)
    return len(bed.client.answers) > before


# ---------------------------------------------------------------- all of them


async def run(chosen: Sequence[tuple[str, str, str]], folder: Path, keep: Path | None = None) -> list[Cell]:
    cells = kept(keep)
    left = [cell for cell in chosen if cell not in {(done.actor, done.state, done.fault) for done in cells}]
    with contextlib.suppress(asyncio.CancelledError):  # SIGTERM: the table of what was done so far
        if left:
            await _run_all(left, folder, cells, keep)
    return cells


def kept(file: Path | None) -> list[Cell]:
    """Cells of earlier runs, as `--keep` noted them."""
    if file is None or not file.exists():
        return []
    return [Cell(**json.loads(line)) for line in file.read_text().splitlines()]


async def _run_all(chosen: Sequence[tuple[str, str, str]], folder: Path, cells: list[Cell], keep: Path | None) -> None:
    running = asyncio.current_task()
    assert running is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    async with bed(folder) as made:
        for actor, state, fault in chosen:
            cell = await _run_until_hit(made, actor, state, fault)
            cells.append(cell)
            if keep is not None:
                with keep.open("a") as file:
                    file.write(json.dumps(asdict(cell)) + "\n")
            sys.stderr.write(f"{actor:10} {state:9} {fault:9} {cell.result} {cell.silence_sec} {cell.converged_sec}\n")
            await asyncio.sleep(1.0)


async def _run_until_hit(bed: Bed, actor: str, state: str, fault: str, tries: int = 10) -> Cell:
    """A state of milliseconds may be over before this process sees it: then once more."""
    for _ in range(tries):
        try:
            return await run_cell(bed, actor, state, fault)
        except TimeoutError as error:
            words = str(error)
            if not await _converges(bed, bed.wanted):
                break
    return Cell(actor, state, fault, f"diverged ({words})")


def table(cells: Sequence[Cell]) -> str:
    """Markdown: a row for each process and fault, a column for each state."""
    found = {(cell.actor, cell.state, cell.fault): cell for cell in cells}
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
    words = ("stuck", "lost", "diverged")
    return {"cells": len(ran)} | {word: sum(word in cell.result for cell in ran) for word in words}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subset", action="store_true", help="twelve telling cells")
    parser.add_argument("--only", default="", help="cells whose 'actor state fault' contains this")
    parser.add_argument("--write", action="store_true", help="keep the table in docs/faults.md")
    parser.add_argument("--keep", type=Path, help="file of cells that ended: noted there, and not struck again")
    options = parser.parse_args()
    every = [(actor, state, fault) for fault in FAULTS for actor in ACTORS for state in STATES]
    chosen = [cell for cell in (SUBSET if options.subset else every) if options.only in " ".join(cell)]
    cells = asyncio.run(run(chosen, Path(tempfile.mkdtemp(prefix="ocm-")), options.keep))
    sys.stdout.write(table(cells))
    if options.write:
        (ROOT / "docs" / "faults.md").write_text(PAGE + "\n" + table(cells))
    sys.stdout.write(json.dumps(summary(cells)) + "\n")


PAGE = f"""# Faults of the weight sync

Every process, struck in every state of a sync, on a real API server with the real operator, gateway and sync agents and
two fake engines; `pauseTimeoutSec` {PAUSE_TIMEOUT_SEC}. `kill -9`: started again after a second. Hang (SIGSTOP) and
partition (nft on the veth) last {FAULT_SEC:.0f} s. A cell gives the verdict, the longest time the client had no answer,
and the time from the fault until every engine served the version. ok: every engine came to serve it, no request stayed
without an answer, and none waited longer than `pauseTimeoutSec` + {REPLY_SLACK_SEC:.0f} s, or than that and the time
for which the gateway itself, the client's only one, was gone. n/a: SGLang and its agent share a pod, and so a veth; the
agent's row tells what cutting it does. Written by `python tests/faults/matrix.py --write` on two cores that were shared
with other work; on a machine so busy that the operator cannot renew its lead in 10 s, fleets converge later.
"""

if __name__ == "__main__":
    main()
