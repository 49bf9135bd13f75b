"""Reward over updates: as text for the terminal and as a PNG."""

from collections.abc import Sequence
from pathlib import Path

_BARS = " ▁▂▃▄▅▆▇█"


def smoothed(values: Sequence[float], width: int = 3) -> list[float]:
    """Mean of each value and the up to `width` − 1 before it."""
    return [
        sum(values[max(0, i - width + 1) : i + 1]) / len(values[max(0, i - width + 1) : i + 1])
        for i in range(len(values))
    ]


def as_text(rates: Sequence[float], height: int = 8) -> str:
    """A bar per update, share of liked answers from 0 to 1 upwards. At most 72 updates, the newest."""
    shown = list(rates)[-72:]
    if not shown:
        return "(no update yet)"
    rows = []
    for row in range(height, 0, -1):
        cells = (_cell(rate, row, height) for rate in shown)
        label = f"{row / height:4.2f}" if row in (height, height // 2) else "    "
        rows.append(f"{label} │{''.join(cells)}")
    first = len(rates) - len(shown) + 1
    rows.append("0.00 └" + "─" * len(shown))
    rows.append(f"      update {first} to {len(rates)}")
    return "\n".join(rows)


def _cell(rate: float, row: int, height: int) -> str:
    filled = min(1.0, max(0.0, rate * height - (row - 1)))
    return _BARS[round(filled * (len(_BARS) - 1))]


def as_png(rates: Sequence[float], held_out: Sequence[tuple[int, float]], path: Path) -> None:
    """Write the picture. `held_out` = (after update, held-out rate)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5), dpi=120)
    updates = range(1, len(rates) + 1)
    axes.plot(updates, rates, color="0.75", marker=".", label="one batch")
    axes.plot(updates, smoothed(rates), color="tab:blue", linewidth=2, label="mean of 3 batches")
    if held_out:
        axes.plot(*zip(*held_out, strict=True), "o", color="tab:red", label="held-out questions")
    axes.axhline(0.8, color="0.5", linestyle=":", linewidth=1)
    axes.set(xlabel="update", ylabel="share of answers users liked", ylim=(0, 1.02), title="What the policy learned")
    axes.legend(loc="lower right", frameon=False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    pyplot.close(figure)
