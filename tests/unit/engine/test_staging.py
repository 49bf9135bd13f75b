"""The agent tells the ranks of SGLang to read ahead, through sockets as they listen on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from openclaw_engine import staging
from openclaw_engine.staging import OK, Stager, StagingError
from tests.unit.engine.test_agent import running


@asynccontextmanager
async def rank(directory: Path, name: str, answer: str | None, heard: list[str]) -> AsyncIterator[None]:
    """One rank; `answer` None: it never answers."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append((await reader.readline()).decode())
        if answer is None:
            await over.wait()
        writer.write((answer or "").encode())
        writer.close()

    over = asyncio.Event()
    async with await asyncio.start_unix_server(serve, directory / f"{name}.sock"):
        try:
            yield
        finally:
            over.set()
            await asyncio.sleep(0.01)


async def staged(tmp_path: Path, *answers: str | None) -> list[str]:
    heard: list[str] = []
    async with AsyncExitStack() as stack:
        for number, answer in enumerate(answers):
            await stack.enter_async_context(rank(tmp_path, str(number), answer, heard))
        await Stager(tmp_path).stage("/weights/v5", 0.3)
    return heard


async def test_every_rank_is_told(tmp_path: Path) -> None:
    assert await staged(tmp_path, f"{OK}\n", f"{OK}\n") == ["/weights/v5\n"] * 2


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ((), "no rank of SGLang listens"),
        ((f"{OK}\n", "OSError: no such file\n"), "OSError: no such file"),
        ((f"{OK}\n", None), "a rank said nothing for 5 s, or took over 0 s"),
        ((f"{OK}\n", ""), "a rank ended"),
    ],
)
async def test_rank_that_has_it_not_is_told_of(tmp_path: Path, answers: tuple[str | None, ...], words: str) -> None:
    with pytest.raises(StagingError, match=words):
        await staged(tmp_path, *answers)


async def test_rank_that_is_silent_is_not_waited_for_and_one_that_works_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "SILENCE_SEC", 0.2)
    async with rank(tmp_path, "0", "\n\n\n" + f"{OK}\n", []):
        await Stager(tmp_path).stage("/weights/v5", 60.0)
    (tmp_path / "0.sock").unlink()
    async with rank(tmp_path, "1", None, []):
        with pytest.raises(StagingError, match="a rank said nothing"):
            await Stager(tmp_path).stage("/weights/v5", 60.0)


async def test_socket_nobody_listens_on_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "0.sock").touch()
    with pytest.raises(StagingError, match="a rank does not listen"):
        await Stager(tmp_path).stage("/weights/v5", 1.0)


async def test_version_is_read_ahead_when_prepared(tmp_path: Path) -> None:
    heard: list[str] = []
    async with rank(tmp_path, "0", f"{OK}\n", heard), running(tmp_path, staging=tmp_path) as rig:
        version = rig.write(1, b"one")
        assert (await rig.post("/prepare", {"version": str(version)}))[1]["ready"]
        assert heard == [f"{tmp_path / 'v1'}\n"]
        assert (await rig.sync(version))[1]["ok"]
        assert (await rig.post("/prepare", {"version": str(version)}))[1]["ready"]
    assert len(heard) == 1, "what is loaded already is not read once more"


async def test_version_that_is_not_read_ahead_is_prepared_and_synced_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with rank(tmp_path, "0", "no room\n", []), running(tmp_path, staging=tmp_path) as rig:
        for number in (1, 2):
            version = rig.write(number, bytes([number]))
            assert (await rig.post("/prepare", {"version": str(version)}))[1]["ready"]
            answer = (await rig.sync(version, epoch=number))[1]
            assert (answer["ok"], answer["staged"]) == (True, False)
        async with rig.session.get(rig.url + "/metrics") as metrics:
            assert "openclawrl_engine_staging_failures_total 2.0" in await metrics.text()
    assert [record.error for record in caplog.records if record.message == "version is not staged"] == ["no room"]  # type: ignore[attr-defined]
