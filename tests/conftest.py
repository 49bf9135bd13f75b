"""Which tests may run beside each other (`pytest -n 2 --dist loadscope`).

one worker:   everything that installs, kills or counts on the operator of the embedded cluster, in order
the other:    whatever has a control plane, an engine or a database of its own, file by file
"""

import pytest
from xdist.scheduler import LoadScopeScheduling

ON_THE_SHARED_OPERATOR = (
    "tests/cluster/test_client_keys.py",
    "tests/cluster/test_look.py",
    "tests/cluster/test_operator.py",
    "tests/cluster/test_submission_hold.py",
    "tests/cluster/test_weight_sync.py",
    "tests/e2e/",
)
"""Files whose tests use the release in the embedded cluster; the fixture that installs it asks for this list."""


def shares_the_operator(node: str) -> bool:
    return node.startswith(ON_THE_SHARED_OPERATOR)


class _OneWorkerForTheOperator(LoadScopeScheduling):
    """Scopes are files, but those that share the operator are one."""

    def _split_scope(self, nodeid: str) -> str:
        return "shared operator" if shares_the_operator(nodeid) else nodeid.split("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling | None:
    return _OneWorkerForTheOperator(config, log) if config.getvalue("dist") == "loadscope" else None  # type: ignore[arg-type]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest chain comes first, so that it never waits for the rest."""
    items.sort(key=lambda item: not shares_the_operator(item.nodeid))
