"""An operator installed for two namespaces, with a Role in each and no ClusterRole, works there and nowhere else."""

import json
import time

import pytest

from openclaw_cluster import bare
from openclaw_core import names
from tests.cluster.conftest import operator_account
from tests.cluster.lab import CHART, Lab, helm, kubectl, training, until
from tests.cluster.own_operator import OwnOperator, PaperKubelet

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


def test_operator_of_two_namespaces_works_there_without_a_cluster_role(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with bare.control_plane(tmp_path_factory.mktemp("two")) as plane, PaperKubelet(plane):
        for namespace in ("ops", "a", "b", "c"):
            kubectl("create", "namespace", namespace, kubeconfig=plane.kubeconfig)
        values = ("--set", "replicas=0", "--set", "watchNamespaces={a,b}")
        helm("install", "openclaw", str(CHART), "--namespace", "ops", *values, kubeconfig=plane.kubeconfig)
        bound = kubectl("get", "clusterrolebindings", "-o", "json", kubeconfig=plane.kubeconfig)
        assert [item for item in json.loads(bound)["items"] if "openclaw" in item["metadata"]["name"]] == []
        account = operator_account(plane)
        operator = OwnOperator(account, plane.folder, environ={"OPENCLAW_WATCH_NAMESPACES": "a,b"})
        operator.start()
        try:
            operator.until_leading()
            labs = {name: Lab(name, plane.kubeconfig) for name in ("a", "b", "c")}
            for lab in labs.values():
                lab.apply(training())
            for name in ("a", "b"):
                labs[name].until_phase("demo", "Running", 60)
            time.sleep(3)
            assert labs["c"].items("deploy,cm,svc", f"{names.LABEL_TRAINING}=demo") == []
            labs["a"].run("delete", names.PLURAL, "demo")
            until("its children are gone", lambda: not labs["a"].items("deploy"), 60)
            assert operator.alive(), operator.log.read_text()[-2000:]
        finally:
            operator.kill()
