"""A store in memory, closed at the end."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.unit.gateway.stored import Stored


@pytest.fixture
def stored() -> Iterator[Callable[..., Stored]]:
    """`stored(rollout_batch_size=4)`: a new store under that policy."""
    opened: list[Stored] = []

    def make(**policy: Any) -> Stored:
        opened.append(Stored(**policy))
        return opened[-1]

    yield make
    for store in opened:
        store.close()
