"""What SGLang loads first."""

import asyncio
from pathlib import Path

import pytest

from openclaw_core.base_model import ModelMissingError
from openclaw_core.versions import Target, WeightVersion
from openclaw_engine.command import Weights
from openclaw_engine.manifest import Volume
from openclaw_engine.start import first_weights
from tests.fakes import weight_versions


def ignore(words: str | None) -> None:
    del words


def point_at(root: Path, version: WeightVersion) -> Path:
    (root / "target.json").write_text(Target(version=str(version)).model_dump_json())
    return root / "target.json"


def base(root: Path) -> Weights:
    (root / "base").mkdir()
    (root / "base" / "config.json").write_text("{}")
    return Weights(str(root / "base"), "0-00000000")


async def test_base_is_loaded_where_nothing_was_published(tmp_path: Path) -> None:
    model = base(tmp_path)
    assert await first_weights(model, Volume(tmp_path), tmp_path / "absent.json", ignore) == model


async def test_complete_target_is_loaded_instead(tmp_path: Path) -> None:
    version = weight_versions.write(tmp_path, 3, {"model.safetensors": b"x"})
    found = await first_weights(base(tmp_path), Volume(tmp_path), point_at(tmp_path, version), ignore)
    assert found == Weights(str(tmp_path / "v3"), str(version))


async def test_incomplete_target_falls_back_to_the_base(tmp_path: Path) -> None:
    version = weight_versions.write(tmp_path, 3, {"model.safetensors": b"x"})
    (tmp_path / "v3" / "model.safetensors").unlink()
    model = base(tmp_path)
    assert await first_weights(model, Volume(tmp_path), point_at(tmp_path, version), ignore) == model


async def test_garbage_in_the_target_file_falls_back_to_the_base(tmp_path: Path) -> None:
    (tmp_path / "target.json").write_text('{"version": "newest"}')
    model = base(tmp_path)
    assert await first_weights(model, Volume(tmp_path), tmp_path / "target.json", ignore) == model


async def test_base_that_is_still_being_copied_is_waited_for(tmp_path: Path) -> None:
    model = Weights(str(tmp_path / "base"), "0-00000000")
    waiting = asyncio.create_task(first_weights(model, Volume(tmp_path), tmp_path / "absent.json", ignore))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    base(tmp_path)
    assert await asyncio.wait_for(waiting, 5) == model


async def test_base_that_never_comes_is_named(tmp_path: Path) -> None:
    model = Weights(str(tmp_path / "base"), "0-00000000")
    with pytest.raises(ModelMissingError, match=r"base/config\.json did not appear"):
        await first_weights(model, Volume(tmp_path), tmp_path / "absent.json", ignore, wait_sec=0.05)


async def test_hub_repository_is_not_waited_for(tmp_path: Path) -> None:
    hub = Weights("org/model", "0-00000000", "main")
    assert await first_weights(hub, Volume(tmp_path), tmp_path / "absent.json", ignore, wait_sec=0.05) == hub
