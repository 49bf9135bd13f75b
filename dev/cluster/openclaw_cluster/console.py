"""What a person sees: one line per step with the time it took, a spinner only where there is a terminal."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

console = Console(highlight=False, soft_wrap=True)


class Steps:
    """Prints the steps of one command; `total` is the number of them, for the counter in front."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._count = 0
        self._started = time.monotonic()

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        self._count += 1
        label = f"[{self._count}/{self._total}] {title}"
        started = time.monotonic()
        if console.is_terminal:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
            with Progress(*columns, console=console, transient=True) as progress:
                progress.add_task(label, total=None)
                yield
        else:
            console.print(f"{label} …", markup=False)
            yield
        console.print(f"{label}: {time.monotonic() - started:.1f} s", markup=False)

    def elapsed(self) -> float:
        return time.monotonic() - self._started


def say(text: str) -> None:
    console.print(text, markup=False)
