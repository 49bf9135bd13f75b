"""What a person reads: the plain lines, the table and the plots."""

import io
from pathlib import Path

from rich.console import Console

from examples.quickstart import live, plots
from examples.quickstart.console import Clock
from examples.quickstart.observation import Observation
from openclaw_core import wire


def seen() -> Observation:
    update = wire.Update(
        step=7,
        version="7-0a1b2c3d",
        samples=16,
        reward_mean=0.5,
        loss=0.1,
        lag_mean=0.5,
        lag_max=1,
        logprob_abs_diff=1.2e-5,
        logprob_abs_diff_fresh=None,
        grad_norm=1.0,
        seconds=4.0,
        finished_at=0.0,
    )
    trainer = wire.TrainerState(phase="waiting", step=7, version="7-0a1b2c3d", trainer_epoch=1, updates=[update])
    users = wire.ClientReport(
        turns_ok=40, refused_total={"503:paused": 2, "429:staleness_bound": 5, "429:queue_full": 1}
    )
    return Observation(trainer=trainer, users=users, serving="7-0a1b2c3d")


def test_plain_line_shows_step_reward_version_lag_drift_and_refusals() -> None:
    text = live.line(seen())
    for words in ("step 7", "75%", "7-0a1b2c3d", "0.5 (max 1)", "1.2e-05", "503 / 429 2 / 6", "turns answered 40"):
        assert words in text


class Watch(Clock):
    """Time as the test says; what is said is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.said = 0.0, list[str]()

    def seconds(self) -> float:
        return self.now

    def say(self, text: str, style: str = "") -> None:
        self.said.append(text)


def test_view_without_a_terminal_is_a_line_per_update_and_now_and_then() -> None:
    clock, nothing = Watch(), Observation()
    with live.view(clock) as shown:  # pytest's output is no terminal
        shown.show(nothing)
        clock.now = 19.0
        shown.show(nothing)
        assert len(clock.said) == 1
        shown.show(seen())
        shown.show(seen())
        assert clock.said[1:] == [live.line(seen())]
        clock.now = 40.0
        shown.show(seen())
    assert len(clock.said) == 3


def test_table_can_be_drawn_before_anything_is_known() -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(live.table(Observation(), 12.0))
    assert "12 s" in console.export_text()


def test_text_plot_has_a_full_bar_for_one_and_none_for_zero() -> None:
    rows = plots.as_text([0.0, 0.5, 1.0], height=2).splitlines()
    assert rows[0].endswith("│  █") and rows[1].endswith("│ ██")
    assert plots.as_text([]) == "(no update yet)"


def test_smoothed_is_the_mean_of_the_last_three() -> None:
    assert plots.smoothed([0.0, 1.0, 0.5, 0.0]) == [0.0, 0.5, 0.5, 0.5]


def test_png_is_written(tmp_path: Path) -> None:
    plots.as_png([0.2, 0.5, 0.9], [(0, 0.2), (3, 0.9)], tmp_path / "deep" / "reward.png")
    assert (tmp_path / "deep" / "reward.png").read_bytes().startswith(b"\x89PNG")
