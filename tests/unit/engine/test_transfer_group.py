"""Limits of SGLang's waits for a sender, on a stand-in for the function of SGLang that joins a group.

That the real one keeps to them is what `tests/contract/test_transfer.py` shows.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest

from openclaw_engine import transfer_group

UPDATER = "sglang.srt.model_executor.model_runner_components.weight_updater"
Join = Callable[..., Any]


@pytest.fixture
def joining(monkeypatch: pytest.MonkeyPatch) -> Callable[[Join], Join]:
    """SGLang's function as its scheduler finds it, once ours are installed around `join`."""

    def made(join: Join) -> Join:
        words = UPDATER.split(".")
        for depth in range(1, len(words) + 1):
            monkeypatch.setitem(sys.modules, ".".join(words[:depth]), ModuleType(words[depth - 1]))
        for depth in range(1, len(words)):
            setattr(sys.modules[".".join(words[:depth])], words[depth], sys.modules[".".join(words[: depth + 1])])
        vars(sys.modules[UPDATER])["init_custom_process_group"] = join
        transfer_group.install()
        installed: Join = vars(sys.modules[UPDATER])["init_custom_process_group"]
        return installed

    return made


def as_asked(**options: Any) -> dict[str, Any]:
    """What SGLang's function was called with, and what NCCL would read."""
    return options | {"blocking": os.environ.get("TORCH_NCCL_BLOCKING_WAIT")}


def test_group_gets_its_own_name_and_the_limit_of_its_waits(joining: Callable[[Join], Join]) -> None:
    found = joining(as_asked)(group_name=transfer_group.limited("sync-7", 2.5), rank=1)
    assert found == {"group_name": "sync-7", "rank": 1, "timeout": timedelta(seconds=2.5), "blocking": "1"}
    assert "TORCH_NCCL_BLOCKING_WAIT" not in os.environ, "SGLang's other groups wait as ever"


def test_group_of_somebody_else_is_left_as_it_is(joining: Callable[[Join], Join]) -> None:
    assert joining(as_asked)(group_name="theirs", rank=1) == {"group_name": "theirs", "rank": 1, "blocking": None}


def test_error_of_a_join_is_passed_on(joining: Callable[[Join], Join]) -> None:
    def refused(**_: Any) -> None:
        raise RuntimeError("connection refused")

    with pytest.raises(RuntimeError, match="connection refused"):
        joining(refused)(group_name=transfer_group.limited("sync-7", 2.5))


@pytest.fixture
def never() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_join_that_hangs_ends_at_the_limit(joining: Callable[[Join], Join], never: threading.Event) -> None:
    """As a read from the store of a stopped sender does."""
    join = joining(lambda **_: never.wait(10))
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"did not come about within 0\.1 s"):
        join(group_name=transfer_group.limited("sync-7", 0.1))
    assert time.monotonic() - began < 5
