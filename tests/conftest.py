"""Which tests may run beside each other (`pytest -n 2 --dist loadgroup`).

one worker:   everything that installs, kills or counts on the operator of the embedded cluster, in order
the other:    whatever has a control plane, an engine or a database of its own, file by file
"""

import pytest

_ON_THE_SHARED_OPERATOR = {"operator", "lab"}
"""Fixtures of tests/cluster that use the release in the embedded cluster."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest chain comes first, so that it never waits for the rest."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group("shared" if _shares_the_operator(item) else str(item.path)))
    items.sort(key=lambda item: not _shares_the_operator(item))


def _shares_the_operator(item: pytest.Item) -> bool:
    fixtures = set(getattr(item, "fixturenames", ()))
    in_cluster = item.get_closest_marker("cluster") is not None
    return item.get_closest_marker("e2e") is not None or (in_cluster and bool(fixtures & _ON_THE_SHARED_OPERATOR))
