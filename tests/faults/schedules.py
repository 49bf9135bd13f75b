"""`python -m tests.faults.schedules`: the weight sync under a hundred thousand schedules of faults, in virtual time.

A schedule is its seed: one that fails is printed with what happened, and is run again by `--first SEED --schedules 1`.
`--rollout` tries versions on a canary first; `--adapters` exchanges them without holds; `--slow` has engines start for
minutes.
The last line is JSON: schedules run, seeds that failed.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from itertools import chain, islice
from pathlib import Path

if __name__ == "__main__" and not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from openclaw_operator.weightsync.machine import Machine
from openclaw_operator.weightsync.swap import SwapMachine
from tests.fakes.sync_system import schedules

CHUNK = 250


def failures(first: int, count: int, *, rollout: bool, adapters: bool, slow: bool) -> list[tuple[int, str]]:
    """(seed, what was broken) of the schedules `first` … `first + count - 1` that fail."""
    found = []
    for seed in range(first, first + count):
        try:
            machine, tried = SwapMachine if adapters else Machine, schedules.TRIED if rollout else None
            schedules.run_by_chance(seed, machine, tried, schedules.SLOW if slow else 0.0)
        except AssertionError as broken:
            found.append((seed, str(broken).strip() or "not converged"))
    return found


def batches(first: int, count: int, jobs: int) -> Iterator[list[tuple[int, int]]]:
    """(first seed, number of seeds) of every chunk, as many at once as there are jobs."""
    chunks = ((start, min(CHUNK, first + count - start)) for start in range(first, first + count, CHUNK))
    while batch := list(islice(chunks, jobs)):
        yield batch


def run(
    first: int,
    count: int,
    jobs: int,
    seconds: float,
    *,
    rollout: bool = False,
    adapters: bool = False,
    slow: bool = False,
) -> dict[str, object]:
    """Run until all are done or `seconds` are over."""
    strike = partial(failures, rollout=rollout, adapters=adapters, slow=slow)
    began, done, failed = time.monotonic(), 0, []
    with ProcessPoolExecutor(jobs) as pool:
        for batch in batches(first, count, jobs):
            found = list(chain.from_iterable(pool.map(strike, *zip(*batch, strict=True))))
            failed += found
            done += sum(size for _, size in batch)
            for seed, broken in found:
                sys.stderr.write(f"seed {seed}: {broken}\n")
            if time.monotonic() - began > seconds:
                break
    for seed, _ in failed[:3]:
        for event in schedules.by_chance(seed).events:
            sys.stderr.write(f"  {seed}: {asdict(event)}\n")
    return {"schedules": done, "failed": [seed for seed, _ in failed], "seconds": round(time.monotonic() - began, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=1000, help="seed of the first; make test runs 0 to 999")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3 * 3600, help="stop after this long")
    parser.add_argument("--rollout", action="store_true", help="each version serves on a canary first")
    parser.add_argument("--adapters", action="store_true", help="versions are LoRA adapters, swapped without a hold")
    parser.add_argument("--slow", action="store_true", help="engines start for minutes")
    options = parser.parse_args()
    how = {"rollout": options.rollout, "adapters": options.adapters, "slow": options.slow}
    result = run(options.first, options.schedules, options.jobs, options.seconds, **how)
    sys.stdout.write(json.dumps(result) + "\n")
    raise SystemExit(1 if result["failed"] else 0)


if __name__ == "__main__":
    main()
