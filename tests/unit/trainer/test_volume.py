"""A version is whole or absent, wherever its writer died; numbers are never reused."""

import hashlib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from openclaw_core.versions import Manifest
from openclaw_trainer import volume as volume_module
from openclaw_trainer.volume import StaleEpochError, Volume

WEIGHTS = {"a.weight": torch.arange(6.0).view(2, 3), "b.weight": torch.ones(4)}


def _publish(volume: Volume, base: Path, number: int = 1, *, epoch: int = 1, step: int = 1) -> Manifest:
    return volume.publish(number, epoch=epoch, step=step, weights=WEIGHTS, base=base)


def test_published_version_holds_weights_config_tokenizer_and_a_true_manifest(tmp_path: Path, base: Path) -> None:
    manifest = _publish(Volume(tmp_path), base, 3, epoch=2, step=7)
    directory = tmp_path / "v3"
    assert {f.name for f in manifest.files} == {p.name for p in directory.iterdir()} - {"manifest.json"}
    assert {"config.json", "tokenizer_config.json", "model.safetensors"} <= {f.name for f in manifest.files}
    for entry in manifest.files:
        content = (directory / entry.name).read_bytes()
        assert (entry.size, entry.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    read_back = Manifest.model_validate_json((directory / "manifest.json").read_bytes())
    assert read_back == manifest and str(manifest.version()) == f"3-{manifest.digest()[:8]}"
    loaded = load_file(directory / "model.safetensors")
    assert all(torch.equal(loaded[name], tensor) for name, tensor in WEIGHTS.items())


def test_config_names_the_dtype_of_the_published_weights(tmp_path: Path, base: Path) -> None:
    half = {name: tensor.to(torch.bfloat16) for name, tensor in WEIGHTS.items()}
    Volume(tmp_path).publish(1, epoch=1, step=1, weights=half, base=base)
    assert '"dtype": "bfloat16"' in (tmp_path / "v1" / "config.json").read_text()


@pytest.mark.parametrize("crash_in", ["_write_model", "_entries", "flush"])
def test_crash_while_writing_leaves_no_version_and_takes_its_number(
    tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch, crash_in: str
) -> None:
    volume = Volume(tmp_path)
    first = _publish(volume, base, 1)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(volume_module, crash_in, die)
        with pytest.raises(KeyboardInterrupt):
            _publish(volume, base, 2)
    assert volume.newest() == first
    assert volume.highest_number() == 2
    volume.sweep()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["v1"]


def test_taken_number_is_refused(tmp_path: Path, base: Path) -> None:
    volume = Volume(tmp_path)
    _publish(volume, base, 1)
    with pytest.raises(FileExistsError, match="never reused"):
        _publish(volume, base, 1)


def test_trainer_of_an_older_epoch_cannot_publish(tmp_path: Path, base: Path) -> None:
    volume = Volume(tmp_path)
    _publish(volume, base, 1, epoch=5)
    with pytest.raises(StaleEpochError, match="epoch 5"):
        _publish(volume, base, 2, epoch=4)


def test_directory_without_a_readable_manifest_is_no_version(tmp_path: Path, base: Path) -> None:
    volume = Volume(tmp_path)
    first = _publish(volume, base, 1)
    (tmp_path / "v9").mkdir()
    (tmp_path / "v9" / "manifest.json").write_text("{")
    assert volume.newest() == first
    assert volume.highest_number() == 9


def test_only_released_versions_are_deleted_and_never_the_newest_or_the_base(tmp_path: Path, base: Path) -> None:
    volume = Volume(tmp_path)
    (tmp_path / "base").mkdir()
    for number in (1, 2, 3):
        _publish(volume, base, number)
    assert volume.delete([0, 1, 3, 8], keep=3) == [1]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["base", "v2", "v3"]


def test_large_weights_are_sharded_with_an_index(tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volume_module, "MAX_SHARD", 20)
    manifest = _publish(Volume(tmp_path), base)
    written = {f.name for f in manifest.files}
    assert "model.safetensors.index.json" in written
    assert len([name for name in written if name.endswith(".safetensors")]) == 2
