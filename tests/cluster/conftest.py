"""Where the tests run: the embedded cluster with the operator installed from this chart, or a control plane without
nodes, which a test may fill with mistakes, restart, and starve of its API server.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from openclaw_cluster import bare
from openclaw_core import names
from tests.cluster.lab import CHART, ROOT, Lab, helm, install_operator, kubectl, until_established
from tests.cluster.own_operator import OwnOperator, PaperKubelet, Rig
from tests.conftest import shares_the_operator


@pytest.fixture(scope="session")
def operator() -> None:
    """The operator of this working tree's chart and of the images `make images` pushed last."""
    install_operator()


@pytest.fixture(autouse=True)
def takes_its_turn(request: pytest.FixtureRequest) -> None:
    """Who uses the operator is named to the scheduler, or two workers would install it at once."""
    if "operator" in request.fixturenames and not shares_the_operator(request.node.nodeid):
        pytest.fail(f"add {request.node.nodeid.split('::')[0]} to ON_THE_SHARED_OPERATOR of tests/conftest.py")


@pytest.fixture(scope="module")
def lab(operator: None) -> Iterator[Lab]:
    """A namespace under the restricted Pod Security Standard; it and everything in it goes afterwards."""
    del operator  # it only has to run
    with Lab.fresh() as found:
        yield found


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[bare.Bare]:
    """An API server, etcd and controllers of the module's own, with this tree's CRD and nothing else."""
    with bare.control_plane(tmp_path_factory.mktemp("plane")) as found:
        install_crd(found.kubeconfig)
        yield found


@pytest.fixture(scope="module")
def paper(plane: bare.Bare) -> Iterator[Lab]:
    """A namespace of `plane`: its pods exist on paper only."""
    with Lab.fresh(plane.kubeconfig) as found:
        yield found


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A control plane with the chart's CRD and rights, an operator process that has those rights and no more, and a
    kubelet on paper.
    """
    with bare.control_plane(tmp_path_factory.mktemp("rig")) as plane, PaperKubelet(plane) as kubelet:
        helm(
            *("install", "openclaw", str(CHART), "--namespace", "ops", "--create-namespace", "--set", "replicas=0"),
            kubeconfig=plane.kubeconfig,
        )
        account = operator_account(plane)
        operator = OwnOperator(account, plane.folder, keep=True)
        operator.start()
        try:
            operator.until_leading()
            with Lab.fresh(plane.kubeconfig) as lab:
                yield Rig(plane, kubelet, operator, lab)
                time.sleep(1)  # a lost lead may just be mended
                assert operator.alive(), operator.log.read_text()[-3000:]
        finally:
            operator.kill()


def operator_account(plane: bare.Bare) -> Path:
    """A kubeconfig with the token of the chart's ServiceAccount."""
    words = ("-n", "ops", "create", "token", "openclaw", "--duration=2h")
    return plane.write_kubeconfig("operator.kubeconfig", kubectl(*words, kubeconfig=plane.kubeconfig).strip())


def install_crd(kubeconfig: Path) -> None:
    file = str(ROOT / "crds" / "openclawtrainings.openclawrl.io.yaml")
    kubectl("apply", "--server-side", "-f", file, kubeconfig=kubeconfig)
    until_established(f"{names.PLURAL}.{names.GROUP}", kubeconfig)
