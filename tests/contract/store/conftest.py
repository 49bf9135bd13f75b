"""The same store on a real PostgreSQL, for the whole run; each test has a schema of its own."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from openclaw_gateway.store.databases import Postgres
from tests.fakes import postgres
from tests.unit.gateway.stored import Stored

_numbers = itertools.count()


@pytest.fixture(scope="session")
def server() -> Iterator[postgres.Server]:
    with postgres.running() as started:
        yield started


def new_database(server: postgres.Server) -> Postgres:
    return Postgres(server.url, namespace="test", training=f"t{next(_numbers)}")


@pytest.fixture
def database(server: postgres.Server) -> Iterator[Postgres]:
    opened = new_database(server)
    yield opened
    opened.engine.dispose()


@pytest.fixture
def stored(server: postgres.Server) -> Iterator[Callable[..., Stored]]:
    """`stored(rollout_batch_size=4)`: a new store under that policy."""
    opened: list[Stored] = []

    def make(**policy: Any) -> Stored:
        opened.append(Stored(new_database(server), **policy))
        return opened[-1]

    yield make
    for store in opened:
        store.close()
