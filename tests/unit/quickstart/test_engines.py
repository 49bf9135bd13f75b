from examples.quickstart.engines import EngineLog
from examples.quickstart.observation import sglang_version


def log(*readings: tuple[str, str, str], sglang: str = "0.5.23") -> EngineLog:
    found = EngineLog()
    for pod, version, checksum in readings:
        found.server_info(pod, sglang)
        found.weights(pod, version, checksum)
    return found


def test_engines_that_change_with_each_version_have_no_fault() -> None:
    found = log(("e", "0-00000000", "a"), ("e", "1-11111111", "b"), ("e", "1-11111111", "b"), ("e", "10-2222222a", "c"))
    assert found.faults() == []
    assert found.versions() == ["1-11111111", "10-2222222a"]


def test_new_version_with_the_old_weights_is_a_fault() -> None:
    found = log(("e", "0-00000000", "a"), ("e", "1-11111111", "a"))
    assert found.faults() == ["e served 2 versions with 1 different weights"]


def test_one_version_with_two_checksums_is_a_fault() -> None:
    assert "two different checksums" in log(("e", "1-11111111", "a"), ("e", "1-11111111", "b")).faults()[0]


def test_another_sglang_is_a_fault_and_so_is_none() -> None:
    assert log(("e", "1-11111111", "a"), sglang="0.5.22").faults() == ["e runs SGLang 0.5.22, not 0.5.23"]
    assert EngineLog().faults() == ["no engine's /server_info was read"]


def test_sglang_version_is_read_from_server_info() -> None:
    assert sglang_version('{"version": "0.5.23", "tp_size": 1}') == "0.5.23"
    assert sglang_version('{"status": "ok"}') is None
    assert sglang_version("<html>") is None
