from typing import Any

import pytest

from openclaw_core.kube import KubeError, Object
from openclaw_operator.apply import Applier, Memory
from openclaw_operator.live import fingerprint
from tests.unit.operator.memory_kube import MemoryKube

SERVICES = "/api/v1/namespaces/lab/services"


def child(kind: str, name: str, version: str = "v1", **content: Any) -> Object:
    owner = {"uid": "training-uid"}
    metadata = {"name": name, "namespace": "lab", "labels": {}, "ownerReferences": [owner]}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **content}


async def test_role_comes_before_its_binding_and_deployments_come_last() -> None:
    kube = MemoryKube()
    rbac = "rbac.authorization.k8s.io/v1"
    children = [
        child("Deployment", "a", "apps/v1"),
        child("RoleBinding", "b", rbac),
        child("Role", "c", rbac),
        child("ConfigMap", "d"),
    ]
    await Applier(kube).apply(children, {}, Memory())
    order = [path.split("/")[-2] for _, path in kube.writes()]
    assert order[-1] == "deployments"
    assert order.index("roles") < order.index("rolebindings")


async def test_one_bad_child_stops_no_other_and_is_named() -> None:
    kube = MemoryKube()
    kube.fail[f"{SERVICES}/bad"] = KubeError(403, "Forbidden", "exceeded quota")
    faults = await Applier(kube).apply([child("Service", "bad"), child("Service", "good")], {}, Memory())
    assert [fault.message for fault in faults] == ["Service bad: exceeded quota"]
    assert f"{SERVICES}/good" in kube.objects


async def test_api_server_in_trouble_fails_the_pass_instead_of_blaming_the_child() -> None:
    kube = MemoryKube()
    kube.fail[SERVICES] = KubeError(503, "Unavailable", "down")
    with pytest.raises(KubeError):
        await Applier(kube).apply([child("Service", "a")], {}, Memory())


async def test_field_that_does_not_exist_is_the_childs_fault_though_the_answer_is_a_500() -> None:
    kube = MemoryKube()
    words = "failed to create typed patch object (lab/a): .spec.template.spec.nodeSelectr: field not declared in schema"
    kube.fail[f"{SERVICES}/a"] = KubeError(500, "", words)
    wanted = child("Service", "a")
    (fault,) = await Applier(kube).apply([wanted], {("Service", "a"): wanted}, Memory())
    assert "nodeSelectr" in fault.message


async def test_clashing_ports_of_a_service_are_replaced() -> None:
    class Clashing(MemoryKube):
        async def apply(self, object_path: str, body: Object, *, field_manager: str, force: bool = True) -> Object:
            if len(self.objects.get(object_path, {}).get("spec", {}).get("ports", [])) > 1:
                raise KubeError(422, "Invalid", "Duplicate value")
            return await super().apply(object_path, body, field_manager=field_manager, force=force)

    kube = Clashing()
    wanted = child("Service", "a", spec={"ports": [{"name": "http", "port": 1}]})
    live = kube.put(f"{SERVICES}/a", wanted | {"spec": {"ports": [{"port": 1}, {"port": 2}]}})
    assert await Applier(kube).apply([wanted], {("Service", "a"): live}, Memory()) == []
    assert kube.objects[f"{SERVICES}/a"]["spec"]["ports"] == [{"name": "http", "port": 1}]


async def test_unwanted_child_is_deleted_but_never_a_claim_or_a_lease() -> None:
    kube = MemoryKube()
    live = {}
    for kind, path in (
        ("Service", f"{SERVICES}/a"),
        ("PersistentVolumeClaim", "/api/v1/namespaces/lab/persistentvolumeclaims/a"),
        ("Lease", "/apis/coordination.k8s.io/v1/namespaces/lab/leases/a"),
    ):
        live[kind, "a"] = kube.put(path, child(kind, "a"))
    await Applier(kube).prune(live.keys(), "lab", live)
    assert sorted(path.split("/")[-2] for path in kube.objects) == ["leases", "persistentvolumeclaims"]


def test_status_is_no_drift_and_a_lease_has_writers_of_its_own() -> None:
    deployment = child("Deployment", "a", spec={"replicas": 1}, status={"readyReplicas": 0})
    assert fingerprint("Deployment", deployment) == fingerprint("Deployment", deployment | {"status": {}})
    assert fingerprint("Deployment", deployment) != fingerprint("Deployment", deployment | {"spec": {"replicas": 2}})
    lease = child("Lease", "a", spec={"leaseTransitions": 1})
    assert fingerprint("Lease", lease) == fingerprint("Lease", lease | {"spec": {"leaseTransitions": 2}})
