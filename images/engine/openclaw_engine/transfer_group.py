"""SGLang's end of a transfer's group, with a limit: a sender that hangs must not leave SGLang deaf beyond the pause.

    agent: limited("sync-7", 2.5) ─▶ /init_weights_update_group, group_name "sync-7@2.500" ─▶ scheduler process
                       group "sync-7", each wait in it at most 2.5 s ◀─ init_custom_process_group ◀─┘

SGLang makes the group with torch's default of half an hour, and waits in it with the very thread that would hear of the
volume, or that it shall continue. An order to make a group has no room for a limit but in the group's name. NCCL shakes
hands in the first broadcast, without a limit: SGLang that hangs there is lost, and its container starts again.
"""

import functools
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

_BLOCKING = "TORCH_NCCL_BLOCKING_WAIT"
"""Read when a group is made. Without it NCCL waits on the GPU, and the end of its time ends the whole process."""


def limited(group: str, seconds: float) -> str:
    """The name that SGLang is given for `group`."""
    return f"{group}@{seconds:.3f}"


def parsed(name: str) -> tuple[str, float | None]:
    """The inverse; None for a group without a limit."""
    group, _, seconds = name.rpartition("@")
    return (group, float(seconds)) if group else (name, None)


def install() -> None:
    """Have SGLang keep to the limits in the names of groups. For a scheduler process, before it joins any."""
    from sglang.srt.model_executor.model_runner_components import weight_updater

    join = weight_updater.init_custom_process_group

    @functools.wraps(join)
    def init_custom_process_group(*, group_name: str, **options: Any) -> Any:
        group, seconds = parsed(group_name)
        if seconds is None:
            return join(group_name=group, **options)
        with _blocking_waits():
            limit = timedelta(seconds=seconds)
            return _within(seconds, functools.partial(join, group_name=group, timeout=limit, **options))

    weight_updater.init_custom_process_group = init_custom_process_group


@contextmanager
def _blocking_waits() -> Iterator[None]:
    before = os.environ.get(_BLOCKING)
    os.environ[_BLOCKING] = "1"
    try:
        yield
    finally:
        del os.environ[_BLOCKING]
        os.environ |= {_BLOCKING: before} if before is not None else {}


def _within(seconds: float, join: Callable[[], Any]) -> Any:
    """The group, or TimeoutError. Some of torch's reads from the sender's store know no limit, so the thread that hangs
    in one is left behind; it ends with the sender."""
    answer: Future[Any] = Future()

    def work() -> None:
        try:
            answer.set_result(join())
        except Exception as error:  # whatever torch raises: SGLang answers with its words
            answer.set_exception(error)

    threading.Thread(target=work, name="transfer-group", daemon=True).start()
    try:
        return answer.result(seconds)
    except TimeoutError as error:
        raise TimeoutError(f"the group did not come about within {seconds:.1f} s") from error
