import socket
from pathlib import Path
from unittest.mock import Mock

import pytest

from openclaw_cluster import supervisor
from openclaw_cluster.processes import Process
from openclaw_cluster.supervisor import Child, Step, decide, next_backoff

OLD = Process("p", ("p", "--old"))
NEW = Process("p", ("p", "--new"))


def test_stopped_process_starts_once_those_before_it_are_ready() -> None:
    assert decide(Child(OLD), OLD, earlier_ready=False, now=1) is Step.NONE
    assert decide(Child(OLD), OLD, earlier_ready=True, now=1) is Step.START


def test_dead_process_waits_for_its_backoff() -> None:
    child = Child(OLD, not_before=10)
    assert decide(child, OLD, earlier_ready=True, now=9.9) is Step.NONE
    assert decide(child, OLD, earlier_ready=True, now=10) is Step.START


@pytest.mark.parametrize("wanted", [NEW, None])
def test_running_process_that_is_not_as_wanted_is_stopped(wanted: Process | None) -> None:
    assert decide(Child(OLD, running=Mock(), ready=True), wanted, earlier_ready=True, now=0) is Step.STOP


def test_running_process_is_probed_until_ready_then_left_alone() -> None:
    assert decide(Child(OLD, running=Mock()), OLD, earlier_ready=True, now=0) is Step.PROBE
    assert decide(Child(OLD, running=Mock(), ready=True), OLD, earlier_ready=True, now=0) is Step.NONE


def test_unwanted_stopped_process_stays_stopped() -> None:
    assert decide(Child(OLD), None, earlier_ready=True, now=0) is Step.NONE


def test_backoff_doubles_to_its_limit_and_forgets_after_a_settled_life() -> None:
    assert next_backoff(1, 0.5) == 1.0
    assert next_backoff(1, 12) == supervisor.LAST_BACKOFF_SEC
    assert next_backoff(supervisor.SETTLED_SEC + 1, 12) == supervisor.FIRST_BACKOFF_SEC


def test_tcp_probe_tells_an_open_port_from_a_closed_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert supervisor.answers(f"tcp:127.0.0.1:{port}", Path("unused"))
    assert not supervisor.answers(f"tcp:127.0.0.1:{port}", Path("unused"))


def test_unix_probe_needs_a_listener_not_just_a_file(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.touch()
    assert not supervisor.answers(f"unix:{path}", Path("unused"))
