"""The wait for a base model that a Job still copies, in virtual time."""

import asyncio
from pathlib import Path

import pytest

from openclaw_core.base_model import TELL_AFTER_SEC, ModelMissingError, appears

pytestmark = pytest.mark.looptime


async def test_model_that_comes_soon_is_no_fault(tmp_path: Path) -> None:
    heard: list[str | None] = []
    waiting = asyncio.create_task(appears(tmp_path, heard.append))
    await asyncio.sleep(TELL_AFTER_SEC / 2)
    (tmp_path / "config.json").write_text("{}")
    await asyncio.wait_for(waiting, 2)
    assert heard == [None]


async def test_absence_is_told_with_file_and_fix_until_the_model_is_there(tmp_path: Path) -> None:
    heard: list[str | None] = []
    waiting = asyncio.create_task(appears(tmp_path / "base", heard.append))
    await asyncio.sleep(TELL_AFTER_SEC + 3)
    words = f"spec.model.path: there is no {tmp_path}/base/config.json; put the model there, or correct the path"
    assert set(heard) == {words}
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").write_text("{}")
    await asyncio.wait_for(waiting, 2)
    assert heard[-1] is None


async def test_model_that_never_comes_ends_the_wait(tmp_path: Path) -> None:
    with pytest.raises(ModelMissingError, match=r"config\.json did not appear within 30 s"):
        await appears(tmp_path, lambda _: None, wait_sec=30)
