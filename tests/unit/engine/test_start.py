"""What SGLang loads first."""

import asyncio
import json
from pathlib import Path

import pytest

from openclaw_core.base_model import ModelMissingError
from openclaw_core.config.policy_training import Lora
from openclaw_core.versions import Target, WeightVersion
from openclaw_engine.command import Weights
from openclaw_engine.manifest import Volume
from openclaw_engine.start import base_with_adapter, first_weights
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
    assert await first_weights(model, Volume(tmp_path), tmp_path / "absent.json", ignore, ignore) == model


async def test_complete_target_is_loaded_instead(tmp_path: Path) -> None:
    version = weight_versions.write(tmp_path, 3, {"model.safetensors": b"x"})
    found = await first_weights(base(tmp_path), Volume(tmp_path), point_at(tmp_path, version), ignore, ignore)
    assert found == Weights(str(tmp_path / "v3"), str(version))


async def test_incomplete_target_falls_back_to_the_base(tmp_path: Path) -> None:
    version = weight_versions.write(tmp_path, 3, {"model.safetensors": b"x"})
    (tmp_path / "v3" / "model.safetensors").unlink()
    model, chosen = base(tmp_path), list[str]()
    found = await first_weights(model, Volume(tmp_path), point_at(tmp_path, version), ignore, chosen.append)
    assert found == model
    assert chosen == [str(version), model.version]


async def test_target_is_named_before_its_files_are_read(tmp_path: Path) -> None:
    version = weight_versions.write(tmp_path, 3, {"model.safetensors": b"x"})
    chosen: list[str] = []

    class Watched(Volume):
        def check(self, version: WeightVersion) -> Path:
            assert chosen == [str(version)], "the trainer may delete them meanwhile"
            return super().check(version)

    await first_weights(base(tmp_path), Watched(tmp_path), point_at(tmp_path, version), ignore, chosen.append)
    assert chosen == [str(version)]


async def test_garbage_in_the_target_file_falls_back_to_the_base(tmp_path: Path) -> None:
    (tmp_path / "target.json").write_text('{"version": "newest"}')
    model = base(tmp_path)
    assert await first_weights(model, Volume(tmp_path), tmp_path / "target.json", ignore, ignore) == model


async def test_base_that_is_still_being_copied_is_waited_for(tmp_path: Path) -> None:
    model = Weights(str(tmp_path / "base"), "0-00000000")
    waiting = asyncio.create_task(first_weights(model, Volume(tmp_path), tmp_path / "absent.json", ignore, ignore))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    base(tmp_path)
    assert await asyncio.wait_for(waiting, 5) == model


async def test_base_that_never_comes_is_named(tmp_path: Path) -> None:
    model = Weights(str(tmp_path / "base"), "0-00000000")
    with pytest.raises(ModelMissingError, match=r"base/config\.json did not appear"):
        await first_weights(model, Volume(tmp_path), tmp_path / "absent.json", ignore, ignore, wait_sec=0.05)


async def test_hub_repository_is_not_waited_for(tmp_path: Path) -> None:
    hub = Weights("org/model", "0-00000000", "main")
    assert await first_weights(hub, Volume(tmp_path), tmp_path / "absent.json", ignore, ignore, wait_sec=0.05) == hub


def adapter_files(rank: int = 4, *modules: str) -> dict[str, bytes]:
    config = {"r": rank, "target_modules": list(modules) or ["q_proj", "v_proj"]}
    return {"adapter_config.json": json.dumps(config).encode(), "adapter_model.safetensors": b"x"}


async def _with_adapter(root: Path, files: dict[str, bytes], **lora: object) -> tuple[Weights, list[str]]:
    """What is loaded, and what was called chosen on the way."""
    version = weight_versions.write(root, 3, files)
    wanted = Lora.model_validate({"rank": 4, "publish": "adapter", **lora})
    volume, chosen = Volume(root, adapters=True), list[str]()
    found = await base_with_adapter(base(root), volume, point_at(root, version), wanted, ignore, chosen.append)
    return found, chosen


async def test_adapter_of_the_target_comes_with_the_base(tmp_path: Path) -> None:
    found, chosen = await _with_adapter(tmp_path, adapter_files())
    assert found.location == str(tmp_path / "base") and found.version == "0-00000000"
    assert found.adapter is not None and found.adapter == (chosen[-1], str(tmp_path / "v3"))


@pytest.mark.parametrize(
    ("files", "lora"),
    [
        (adapter_files(8), {}),
        (adapter_files(4, "q_proj", "lm_head"), {}),
        (adapter_files(), {"targets": ["q_proj"]}),
        ({"model.safetensors": b"x"}, {}),
    ],
    ids=["rank", "layers", "fewer layers", "whole weights"],
)
async def test_adapter_sglang_would_end_over_is_left_out(
    tmp_path: Path, files: dict[str, bytes], lora: dict[str, object]
) -> None:
    found, chosen = await _with_adapter(tmp_path, files, **lora)
    assert found.adapter is None
    assert chosen[-1] == found.version
