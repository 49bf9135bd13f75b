"""How the fault matrix takes what goes wrong: no failure is tried again, and no part of the table is written."""

import asyncio
import json
import signal
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from openclaw_core.wire import Stats
from tests.faults import cells, matrix
from tests.faults.cells import Cell
from tests.faults.client import Client
from tests.faults.fault_bed import Bed


@dataclass
class PaperBed:
    """Settled at once; its client is answered ten times a second. `back`: the gateway serves after each kill."""

    experience: Path
    back: Iterator[bool]
    published_in_time: Iterator[bool] = field(default_factory=lambda: iter([True]))
    wanted: int = 0
    kills: list[str] = field(default_factory=list)
    client: Client = field(default_factory=lambda: Client(""))

    def __post_init__(self) -> None:
        self.parts = {"gateway": self, "trainer": self}
        with closing(sqlite3.connect(self.experience / "experience.db")) as store:
            store.execute("create table turns (session, state, reason)")

    def signal(self, number: signal.Signals) -> None:
        self.kills.append(number.name)

    def publish(self) -> int:
        self.wanted += 1
        return self.wanted

    async def published(self) -> int:
        return self.wanted if next(self.published_in_time) else 0

    async def lease(self) -> None:
        return None

    async def settled(self, _: int) -> bool:
        return True

    async def gateway_serves(self) -> bool:
        return next(self.back)

    async def stats(self) -> Stats:
        return Stats()

    async def until(self, what: str, true: Callable[[], Awaitable[Any]], _: float) -> Any:
        if found := await true():
            return found
        raise TimeoutError(what)


async def struck(bed: PaperBed, actor: str, state: str) -> Cell:
    async def answers() -> None:
        while True:
            bed.client.answers.append(asyncio.get_running_loop().time())
            await asyncio.sleep(0.1)

    answering = asyncio.create_task(answers())
    try:
        return await matrix._run_until_hit(cast(Bed, bed), actor, state, "kill -9")
    finally:
        answering.cancel()
        await asyncio.wait([answering])


async def test_gateway_that_does_not_come_back_is_stuck_and_not_struck_again(tmp_path: Path) -> None:
    bed = PaperBed(tmp_path, back=iter([False, True]))
    cell = await struck(bed, "gateway", "Idle")
    assert (cell.result, bed.kills) == ("stuck", ["SIGKILL"])


async def test_state_that_was_missed_is_tried_again_and_only_then_struck(tmp_path: Path) -> None:
    bed = PaperBed(tmp_path, back=iter([]), published_in_time=iter([False, True]))
    cell = await struck(bed, "trainer", "Preparing")
    assert (cell.result, bed.wanted, bed.kills) == ("ok", 2, ["SIGKILL"])


async def test_state_that_is_missed_every_time_is_not_ok(tmp_path: Path) -> None:
    bed = PaperBed(tmp_path, back=iter([]), published_in_time=iter([False] * 10))
    cell = await struck(bed, "trainer", "Preparing")
    assert (cell.result, bed.kills) == ("missed (the version is announced)", [])


async def test_answer_without_a_turn_in_the_store_is_lost(tmp_path: Path) -> None:
    bed = PaperBed(tmp_path, back=iter([True]))
    bed.client._answered.append("asked-1")
    assert (await struck(bed, "gateway", "Idle")).result == "lost"


# ---------------------------------------------------------------- the command


@dataclass
class Command:
    """`matrix.py --write --keep FILE …` with `ended` in the file, so that nothing is left to strike."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch

    def run(self, ended: list[Cell], *words: str) -> tuple[int, str | None]:
        """Exit code, and the page if it was written."""
        docs, keep = self.folder / "docs", self.folder / "kept"
        docs.mkdir()
        keep.write_text("".join(json.dumps(asdict(cell)) + "\n" for cell in ended))
        self.monkeypatch.setattr(matrix, "ROOT", self.folder)
        self.monkeypatch.setattr("sys.argv", ["matrix.py", "--write", "--keep", str(keep), *words])
        with pytest.raises(SystemExit) as ending:
            matrix.main()
        page = docs / "faults.md"
        return int(cast(int, ending.value.code)), page.read_text() if page.exists() else None


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(tmp_path, monkeypatch)


ALL_OK = [Cell(*key, "ok", 2.0, 3.0) for key in cells.EVERY]


def test_whole_table_is_written(command: Command) -> None:
    assert command.run(ALL_OK) == (0, cells.PAGE + "\n" + cells.table(ALL_OK))


def test_part_of_the_cells_is_written_only_with_all_the_others_in_the_kept_file(command: Command) -> None:
    assert command.run(ALL_OK, "--only", "operator Idle")[1] is not None


def test_part_of_the_table_is_never_written(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(ALL_OK[:1], "--only", "operator Idle kill") == (2, None)
    assert "--keep's file lacks 89 cells that are not chosen" in capsys.readouterr().err


def test_matrix_with_a_wrong_cell_exits_with_1_and_shows_it(command: Command) -> None:
    code, page = command.run([*ALL_OK[:-1], Cell(*cells.EVERY[-1], "stuck", 20.0, 3.0)])
    assert code == 1
    assert page is not None and "stuck, 20.0 s, 3.0 s" in page
