"""The whole loop in the cluster with the tiny model: what `make demo` promises, in minutes."""

from pathlib import Path

import pytest

from tests.e2e import quickstart

pytestmark = [pytest.mark.e2e]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> quickstart.Run:
    out: Path = tmp_path_factory.mktemp("quickstart")
    found = quickstart.run(minutes=10, namespace="openclaw-e2e", out=out)
    assert (out / "reward.png").exists(), found.output
    return found


def test_main_job_serves_new_versions_whose_weights_really_differ(demo: quickstart.Run) -> None:
    # The demo itself fails when an engine is not SGLang 0.5.23 or a checksum does not change with its version.
    assert demo.result["versions"] >= 3
    assert "different weights" not in demo.output and "not 0.5.23" not in demo.output


def test_main_job_pauses_for_each_sync_and_refuses_only_then(demo: quickstart.Run) -> None:
    assert len(demo.result["windows_ms"]) >= 3
    assert max(demo.result["windows_ms"]) < 30_000
    assert demo.result["outside_window_503"] == 0


def test_main_job_loses_no_turn(demo: quickstart.Run) -> None:
    assert demo.result["lost"] == 0


def test_main_job_learns_what_users_like_and_says_so_by_its_exit_code(demo: quickstart.Run) -> None:
    assert demo.result["learned"] is True, demo.output
    assert demo.code == 0
    assert demo.result["rate_after"] >= 0.8
