"""`python tests/faults/matrix.py`: every process × every state of a weight sync × kill, hang and partition.

Each cell publishes a version, waits for the state, strikes, undoes the fault after 12 s (a killed process is started
again a second later), and asks: does every engine serve the version in the end, does the 503 end, is every client
answered, and every answer recorded? It runs on a control plane of its own (`fault_bed`); needs root, nft and the
programs `make cluster-up` built.
The table goes to stdout and, with `--write`, into docs/faults.md once it is whole; the last line is JSON: cells, stuck,
lost, diverged, missed. Exits with 1 if anything was, or if a chosen cell did not end. All take an hour on two cores;
`--keep FILE` notes each cell there as it ends, goes on behind those it finds in it, and shows those too.
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
from dataclasses import asdict
from pathlib import Path

if __name__ == "__main__" and not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.faults import books
from tests.faults.cells import (
    EVERY,
    FAULT_SEC,
    PAGE,
    SUBSET,
    Cell,
    Key,
    impossible,
    in_time,
    kept,
    missing,
    passed,
    summary,
    table,
    verdict,
)
from tests.faults.fault_bed import ENGINES, RESTART_SEC, ROOT, Bed, bed

CONVERGE_SEC = 75.0


# ---------------------------------------------------------------- states


class MissedError(Exception):
    """The state did not come, or was over before it could be struck."""


async def reach(bed: Bed, state: str) -> int:
    """Publish, and return in the middle of `state`; the version's number. MissedError when it was missed."""
    try:
        return await _reach(bed, state)
    except TimeoutError as error:
        raise MissedError(str(error)) from error


async def _reach(bed: Bed, state: str) -> int:
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


async def run_cell(bed: Bed, actor: str, state: str, fault: str, lost: int) -> Cell:
    """From a settled bed to a settled bed. `lost`: questions that were lost before. MissedError: nothing was struck."""
    if impossible(actor, fault):
        return Cell(actor, state, fault, "n/a")
    client = bed.client
    began = time.monotonic()
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
    ended = time.monotonic()
    gone = await away if away is not None else FAULT_SEC if actor == "gateway" else 0.0
    answered = answered and gone is not None and in_time(client.silences(began, ended), actor, fault, gone)
    result = verdict(lost=client.lost - lost + await books.lost_turns(bed), converged=converged, answered=answered)
    return Cell(actor, state, fault, result, round(client.longest_silence(began, ended), 1), round(took, 1))


async def _gateway_is_back(bed: Bed, struck: float) -> float | None:
    """Seconds that the only gateway was gone for: from the kill until it serves again. None: it did not come back."""
    await asyncio.sleep(RESTART_SEC)  # what answers before is the one that dies
    try:
        await bed.until("the gateway is back", bed.gateway_serves, CONVERGE_SEC)
    except TimeoutError:
        return None
    return time.monotonic() - struck


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


async def run(chosen: Sequence[Key], folder: Path, keep: Path | None = None) -> list[Cell]:
    """Those that `keep` has are not struck again."""
    cells = kept(keep)
    left = missing(cells, chosen)
    with contextlib.suppress(asyncio.CancelledError):  # SIGTERM: the table of what was done so far
        if left:
            await _run_all(left, folder, cells, keep)
    return cells


async def _run_all(chosen: Sequence[Key], folder: Path, cells: list[Cell], keep: Path | None) -> None:
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
    """A state of milliseconds may be over before this process sees it: then once more. Only that is tried again."""
    words, lost = "", bed.client.lost
    for _ in range(tries):
        try:
            return await run_cell(bed, actor, state, fault, lost)
        except MissedError as error:
            words = str(error)
            if not await _converges(bed, bed.wanted):
                return Cell(actor, state, fault, f"diverged ({words})")
    return Cell(actor, state, fault, f"missed ({words})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subset", action="store_true", help="twelve telling cells")
    parser.add_argument("--only", default="", help="cells whose 'actor state fault' contains this")
    parser.add_argument("--write", action="store_true", help="keep the table, which must be whole, in docs/faults.md")
    parser.add_argument("--keep", type=Path, help="file of cells that ended: noted there, and not struck again")
    options = parser.parse_args()
    chosen = [key for key in (SUBSET if options.subset else EVERY) if options.only in " ".join(key)]
    if options.write and (others := missing(kept(options.keep), set(EVERY) - set(chosen))):
        parser.error(f"--write needs the whole table, and --keep's file lacks {len(others)} cells that are not chosen")
    cells = asyncio.run(run(chosen, Path(tempfile.mkdtemp(prefix="ocm-")), options.keep))
    sys.stdout.write(table(cells))
    if options.write and not missing(cells):
        (ROOT / "docs" / "faults.md").write_text(PAGE + "\n" + table(cells))
    sys.stdout.write(json.dumps(summary(cells)) + "\n")
    raise SystemExit(0 if passed(cells, chosen) else 1)


if __name__ == "__main__":
    main()
