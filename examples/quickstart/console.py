"""How the demo speaks: one line per fact, with the seconds since its start. Colour only on a terminal."""

import time

from rich.console import Console

console = Console(highlight=False, soft_wrap=True)


class Clock:
    """Seconds since the demo started."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def seconds(self) -> float:
        return time.monotonic() - self._started

    def say(self, text: str, style: str = "") -> None:
        console.print(f"[dim]{self.seconds():6.1f} s[/dim]  ", end="")
        console.print(text, style=style, markup=False)
