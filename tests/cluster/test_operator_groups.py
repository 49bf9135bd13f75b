"""Where the cluster has LeaderWorkerSets, a trainer of several pods is one. Its controller is absent here."""

import json
from typing import Any

import pytest

from openclaw_core import names
from tests.cluster.lab import kubectl, training, until
from tests.cluster.own_operator import Rig

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
SCHEMA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
GROUP = "leaderworkerset.x-k8s.io"
DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": f"leaderworkersets.{GROUP}",
        "annotations": {"api-approved.kubernetes.io": "unapproved, a test's stand-in"},
    },
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"kind": "LeaderWorkerSet", "plural": "leaderworkersets", "singular": "leaderworkerset"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}}],
    },
}


def test_trainer_of_several_pods_is_a_group_and_goes_with_the_wish(rig: Rig) -> None:
    kubectl("apply", "-f", "-", stdin=json.dumps(DEFINITION), kubeconfig=rig.plane.kubeconfig)
    wait = ("wait", "--for=condition=Established", "--timeout=30s", f"crd/leaderworkersets.{GROUP}")
    kubectl(*wait, kubeconfig=rig.plane.kubeconfig)
    rig.operator.kill()
    rig.operator.start()
    rig.operator.until_leading()
    body = training("demo")
    body["spec"]["policyTraining"]["nodes"] = 2
    rig.lab.apply(body)
    found = until("the group is there", lambda: rig.lab.get("leaderworkersets", names.ranks("demo")), 30)
    group = found["spec"]["leaderWorkerTemplate"]
    assert (found["spec"]["replicas"], group["size"]) == (1, 2)
    assert group["restartPolicy"] == "RecreateGroupOnPodRestart"
    env = {item["name"]: item for item in group["workerTemplate"]["spec"]["containers"][0]["env"]}
    assert env[names.ENV_RENDEZVOUS]["value"] == f"demo-ranks-0.demo-ranks.{rig.lab.namespace}.svc:29500"
    assert "worker-index" in env[names.ENV_NODE_RANK]["valueFrom"]["fieldRef"]["fieldPath"]
    assert rig.lab.get("sts", "demo-trainer") == rig.lab.get("svc", names.ranks("demo")) == {}
    rig.lab.patch(names.PLURAL, "demo", {"spec": {"suspend": True}})
    until("it is suspended", lambda: rig.lab.get("leaderworkersets", "demo-ranks")["spec"]["replicas"] == 0, 20)
    rig.lab.patch(names.PLURAL, "demo", {"spec": {"suspend": False, "policyTraining": {"nodes": 1}}})
    until("the group is gone", lambda: rig.lab.get("leaderworkersets", "demo-ranks") == {}, 30)
    until("one Deployment again", lambda: rig.lab.get("deploy", "demo-trainer"), 20)
