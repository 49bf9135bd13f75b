"""Which tests may run beside each other (`pytest -n 2 --dist loadscope`).

one worker:   everything that installs, kills or counts on the operator of the embedded cluster, in order
the other:    whatever has a control plane, an engine or a database of its own, file by file; those that make the
              machine's one network of faults (`tests/faults/pod_network.py`) never beside each other
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
ON_THE_POD_NETWORK = ("tests/cluster/test_fault_matrix.py", "tests/cluster/test_rollout.py")


def shares_the_operator(node: str) -> bool:
    return node.startswith(ON_THE_SHARED_OPERATOR)


class _OneWorkerForTheOperator(LoadScopeScheduling):
    """Scopes are files, but those that share the operator are one, and so are those that share the pod network."""

    def _split_scope(self, nodeid: str) -> str:
        if shares_the_operator(nodeid):
            return "shared operator"
        return "pod network" if nodeid.startswith(ON_THE_POD_NETWORK) else nodeid.split("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling | None:
    return _OneWorkerForTheOperator(config, log) if config.getvalue("dist") == "loadscope" else None  # type: ignore[arg-type]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest chain comes first, so that it never waits for the rest."""
    items.sort(key=lambda item: not shares_the_operator(item.nodeid))
