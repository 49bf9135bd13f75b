"""Which versions on the volume the agent takes for complete."""

import ctypes
import mmap
import os
import time
from pathlib import Path

import pytest

from openclaw_core.versions import BASE, WeightVersion
from openclaw_engine.manifest import IncompleteVersionError, Volume
from tests.fakes import weight_versions

FILES = {"model.safetensors": b"weights", "config.json": b"{}"}


def test_complete_version_gives_its_directory(tmp_path: Path) -> None:
    version = weight_versions.write(tmp_path, 7, FILES)
    assert Volume(tmp_path).check(version) == tmp_path / "v7"


def test_missing_version_is_named(tmp_path: Path) -> None:
    with pytest.raises(IncompleteVersionError, match=r"v7/manifest\.json: No such file"):
        Volume(tmp_path).check(WeightVersion(number=7, digest8="00000000"))


def test_other_content_under_the_same_number_is_refused(tmp_path: Path) -> None:
    version = weight_versions.write(tmp_path, 7, FILES)
    announced = WeightVersion(number=7, digest8="ffffffff")
    with pytest.raises(IncompleteVersionError, match=f"holds version {version}, not {announced}"):
        Volume(tmp_path).check(announced)


def test_file_cut_short_is_found_even_after_it_was_checked_once(tmp_path: Path) -> None:
    version = weight_versions.write(tmp_path, 7, FILES)
    volume = Volume(tmp_path)
    volume.check(version)
    (tmp_path / "v7" / "model.safetensors").write_bytes(b"weight")
    with pytest.raises(IncompleteVersionError, match="has 6 bytes, its manifest says 7"):
        volume.check(version)


def test_damaged_file_of_the_right_size_is_found(tmp_path: Path) -> None:
    version = weight_versions.write(tmp_path, 7, FILES)
    (tmp_path / "v7" / "model.safetensors").write_bytes(b"weightz")
    with pytest.raises(IncompleteVersionError, match="does not match the hash"):
        Volume(tmp_path).check(version)


def test_hashes_are_computed_once(tmp_path: Path) -> None:
    version = weight_versions.write(tmp_path, 7, FILES)
    volume = Volume(tmp_path)
    volume.check(version)
    (tmp_path / "v7" / "model.safetensors").write_bytes(b"weightz")
    assert volume.check(version) == tmp_path / "v7"


def test_checked_version_that_left_the_page_cache_is_read_into_it_again(tmp_path: Path) -> None:
    version = weight_versions.write(tmp_path, 7, {"model.safetensors": bytes(4 << 20)})
    volume, file = Volume(tmp_path), tmp_path / "v7" / "model.safetensors"
    volume.check(version)
    _evict(file)
    if _in_memory(file):
        pytest.skip("this file system keeps its files in memory")
    volume.check(version)
    deadline = time.monotonic() + 5
    while not _in_memory(file):
        assert time.monotonic() < deadline, "the update in the pause would read from the disk"
        time.sleep(0.01)


def _evict(file: Path) -> None:
    with file.open("rb+") as stream:
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _in_memory(file: Path) -> bool:
    """Is all of it in the page cache? Asking brings nothing there."""
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY) as content:
        pages = (ctypes.c_ubyte * -(-len(content) // mmap.PAGESIZE))()
        first = ctypes.c_char.from_buffer(content)
        failed = ctypes.CDLL(None).mincore(
            ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(len(content)), pages
        )
        del first
        assert failed == 0
        return all(page & 1 for page in pages)


def test_garbage_instead_of_a_manifest_is_no_version(tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1" / "manifest.json").write_text("{")
    with pytest.raises(IncompleteVersionError, match="is no manifest"):
        Volume(tmp_path).check(WeightVersion(number=1, digest8="00000000"))


def test_file_outside_the_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"x")
    version = weight_versions.write(tmp_path, 1, FILES)
    manifest = tmp_path / "v1" / "manifest.json"
    manifest.write_text(manifest.read_text().replace("config.json", "../secret"))
    reread = WeightVersion.of(1, _digest(manifest))
    assert reread != version
    with pytest.raises(IncompleteVersionError, match="lies outside"):
        Volume(tmp_path).check(reread)


def _digest(manifest: Path) -> str:
    from openclaw_core.versions import Manifest

    return Manifest.model_validate_json(manifest.read_bytes()).digest()


def test_versions_differ_by_their_weight_files_alone(tmp_path: Path) -> None:
    volume = Volume(tmp_path)
    one = weight_versions.write(tmp_path, 1, FILES)
    same = weight_versions.write(tmp_path, 2, FILES | {"config.json": b"[]"})
    other = weight_versions.write(tmp_path, 3, FILES | {"model.safetensors": b"more"})
    for version in (one, same, other):
        volume.check(version)
    assert volume.differ(one, same) is False
    assert volume.differ(one, other) is True
    assert volume.differ(BASE, one) is None
    assert volume.differ(None, one) is None
