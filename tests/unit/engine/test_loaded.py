"""A checksum that contradicts the files is noticed; one that follows from them is not."""

import pytest

from openclaw_core.versions import WeightVersion
from openclaw_engine.loaded import ContradictionError, Loaded

ONE, TWO = WeightVersion(number=1, digest8="a" * 8), WeightVersion(number=2, digest8="b" * 8)


def after_move(*, differ: bool | None, before: str, after: str) -> Loaded:
    loaded = Loaded()
    loaded.moved_to(ONE)
    loaded.measured(before, lambda _, __: None)
    loaded.moved_to(TWO)
    loaded.measured(after, lambda _, __: differ)
    return loaded


@pytest.mark.parametrize(("differ", "after"), [(True, "y"), (False, "x"), (None, "x"), (None, "y")])
def test_checksum_that_follows_from_the_files_is_kept(differ: bool | None, after: str) -> None:
    assert after_move(differ=differ, before="x", after=after).checksum == after


@pytest.mark.parametrize(("differ", "after"), [(True, "x"), (False, "y")])
def test_checksum_that_contradicts_the_files_is_refused(differ: bool, after: str) -> None:
    with pytest.raises(ContradictionError, match="2-bbbbbbbb"):
        after_move(differ=differ, before="x", after=after)


def test_same_version_must_keep_its_checksum() -> None:
    loaded = after_move(differ=True, before="x", after="y")
    loaded.moved_to(TWO)
    assert loaded.checksum is None
    with pytest.raises(ContradictionError):
        loaded.measured("z", lambda _, __: None)


def test_missed_measurement_compares_with_the_last_one_made() -> None:
    loaded = Loaded()
    loaded.moved_to(ONE)
    loaded.measured("x", lambda _, __: None)
    loaded.moved_to(TWO)
    loaded.moved_to(ONE)
    loaded.measured("x", lambda _, __: True)
    assert loaded.checksum == "x"
