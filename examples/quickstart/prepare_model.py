"""Write a base model of the quickstart: `python -m examples.quickstart.prepare_model --model smollm2 --out DIR`.

Runs when the quickstart's image is built (and on a laptop, for the learning probe). The directory
appears whole or not at all, and an existing one is left alone, so the Job may run any number of times.
"""

import argparse
import logging
import os
import shutil
import time
from pathlib import Path

import torch

from examples.quickstart import smollm2_model, tiny_model

log = logging.getLogger(__name__)
WRITERS = {"smollm2": smollm2_model.write, "tiny": tiny_model.write}


def prepare(model: str, out: Path) -> bool:
    """Write `model` into `out`; False when `out` is there already."""
    if out.exists():
        return False
    scratch = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    WRITERS[model](scratch)
    for path in scratch.iterdir():
        _flush(path)
    _flush(scratch)
    scratch.rename(out)
    _flush(out.parent)
    return True


def _flush(path: Path) -> None:
    """Push a file or directory to the disk, so that a node that dies leaves no half of it behind the rename."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=sorted(WRITERS), default="smollm2")
    parser.add_argument("--out", type=Path, required=True, help="directory that will hold the model, e.g. …/base")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)  # more threads spin and steal from whatever else runs on a small machine
    started = time.monotonic()
    written = prepare(arguments.model, arguments.out)
    state = f"written in {time.monotonic() - started:.0f} s" if written else "is there already"
    log.info("%s %s %s", arguments.model, arguments.out, state)


if __name__ == "__main__":
    main()
