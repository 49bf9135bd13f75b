"""Edits, scaling, suspension, sets and removal of a training. Real API server and controllers, pods on paper."""

import json
import time
from typing import Any

import pytest

from openclaw_core import names
from tests.cluster.lab import CHART, helm, kubectl, training, until
from tests.cluster.own_operator import Rig, ready, waiting

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
Object = dict[str, Any]
JUDGE_MODEL = f"{names.LABEL_COMPONENT}={names.JUDGE_MODEL}"
WATCHED = "deploy,sts,svc,cm,sa,role,rolebinding,pvc,pdb,lease"


@pytest.fixture
def demo(rig: Rig) -> Any:
    rig.kubelet.decide = ready
    rig.lab.secret("judge-key", key="sk-real-0123")
    ref = {"baseUrl": "http://judge.invalid/v1", "apiKeySecretRef": {"name": "judge-key", "key": "key"}}
    rig.lab.apply(training(api=ref))
    rig.lab.until_phase("demo", "Running", 150)
    yield "demo"
    rig.lab.run("delete", names.PLURAL, "demo", "--ignore-not-found")
    until("its children are gone", lambda: not rig.lab.items("pods,deploy,sts"), 60)


def template(rig: Rig, component: str) -> Object:
    found: Object = rig.lab.get("deploy", f"demo-{component}")["spec"]["template"]
    return found


def revisions(rig: Rig) -> dict[str, str]:
    return {
        component: template(rig, component)["metadata"]["annotations"][names.ANNOTATION_REVISION]
        for component in ("engine", "gateway", "judge", "trainer")
    }


def edit(rig: Rig, **spec: Any) -> None:
    rig.lab.patch(names.PLURAL, "demo", {"spec": spec})


def test_judge_model_comes_and_goes_with_the_wish_and_judging_waits_for_it(rig: Rig, demo: str) -> None:
    rig.kubelet.decide = lambda pod: waiting(pod) if "judge-model" in pod["metadata"]["name"] else ready(pod)
    edit(rig, api={"baseUrl": None}, rewardJudging={"deployed": {"model": {"path": "judge"}, "device": "cpu"}})
    until(
        "judging waits for the model",
        lambda: "judge-model" in rig.lab.condition(demo, "JudgingReady").get("message", ""),
        60,
    )
    assert rig.lab.condition(demo, "JudgingReady")["status"] == "False"
    endpoint = json.loads(rig.lab.get("cm", "demo-judge")["data"]["config.json"])["endpoint"]
    assert endpoint == f"http://demo-judge-model.{rig.lab.namespace}.svc:8000/v1"
    rig.kubelet.decide = ready
    rig.lab.until_phase(demo, "Running", 60)
    assert rig.lab.status(demo)["judgeModel"]["summary"] == "1/1"
    edit(rig, api={"baseUrl": "http://judge.invalid/v1"}, rewardJudging={"deployed": None})
    until("the judge model is gone", lambda: not rig.lab.items("deploy,svc,cm,sa", JUDGE_MODEL), 60)
    rig.lab.until_phase(demo, "Running", 60)
    assert "judgeModel" not in rig.lab.status(demo)


@pytest.mark.parametrize(
    ("spec", "rolls"),
    [
        ({"rewardJudging": {"judgeTimeoutSec": 31}}, {"judge"}),
        ({"policyTraining": {"learningRate": 0.5}}, {"trainer"}),
        ({"policyServing": {"args": ["--x"]}}, {"engine"}),
        ({"policyServing": {"gateway": {"maxConcurrent": 9}}}, {"gateway"}),
        ({"policyServing": {"pauseTimeoutSec": 21}}, set()),
    ],
)
def test_every_edit_rolls_exactly_its_component(rig: Rig, demo: str, spec: Object, rolls: set[str]) -> None:
    before = revisions(rig)
    edit(rig, **spec)
    generation = rig.lab.get(names.PLURAL, demo)["metadata"]["generation"]
    until("the edit is observed", lambda: rig.lab.status(demo)["observedGeneration"] == generation, 20)
    rig.lab.until_phase(demo, "Running", 30)
    after = revisions(rig)
    assert {component for component in after if after[component] != before[component]} == rolls


def test_quick_edits_and_a_revert_end_where_they_began(rig: Rig, demo: str) -> None:
    first = revisions(rig)
    kept = rig.uids(demo, "trainer")
    for timeout in (31, 32, 33, 34, 30):
        edit(rig, rewardJudging={"judgeTimeoutSec": timeout})
    generation = rig.lab.get(names.PLURAL, demo)["metadata"]["generation"]
    until("the last edit is observed", lambda: rig.lab.status(demo)["observedGeneration"] == generation, 20)
    rig.lab.until_phase(demo, "Running", 60)
    assert revisions(rig) == first
    assert rig.uids(demo, "trainer") == kept


def test_replace_that_wipes_annotations_creates_nothing_twice(rig: Rig, demo: str) -> None:
    time.sleep(2)
    before = {name: item["metadata"]["uid"] for name, item in named(rig).items()}
    body = rig.lab.get(names.PLURAL, demo)
    body["metadata"] = {key: body["metadata"][key] for key in ("name", "namespace", "resourceVersion")}
    body.pop("status")
    rig.lab.run("replace", "-f", "-", stdin=json.dumps(body))
    until(
        "the mirror is back",
        lambda: names.ANNOTATION_WEIGHT_SYNC in rig.lab.get(names.PLURAL, demo)["metadata"].get("annotations", {}),
        20,
    )
    assert {name: item["metadata"]["uid"] for name, item in named(rig).items()} == before
    assert rig.lab.status(demo)["phase"] == "Running"


def test_forced_upgrade_of_the_chart_makes_nothing_twice_and_keeps_every_training(rig: Rig, demo: str) -> None:
    """`--force` replaces the chart's objects whole, the CRD and the operator's account among them."""
    crd = ("get", "crd", f"{names.PLURAL}.{names.GROUP}", "-o", "jsonpath={.metadata.uid}")
    definition = kubectl(*crd, kubeconfig=rig.plane.kubeconfig)
    training_uid = rig.lab.get(names.PLURAL, demo)["metadata"]["uid"]
    before = {name: item["metadata"]["uid"] for name, item in named(rig).items()}
    helm(
        *("upgrade", "openclaw", str(CHART), "--namespace", "ops", "--set", "replicas=0", "--force"),
        kubeconfig=rig.plane.kubeconfig,
    )
    edit(rig, rewardJudging={"judgeTimeoutSec": 37})
    generation = rig.lab.get(names.PLURAL, demo)["metadata"]["generation"]
    until("the operator goes on", lambda: rig.lab.status(demo)["observedGeneration"] == generation, 60)
    assert kubectl(*crd, kubeconfig=rig.plane.kubeconfig) == definition
    assert rig.lab.get(names.PLURAL, demo)["metadata"]["uid"] == training_uid
    assert {name: item["metadata"]["uid"] for name, item in named(rig).items()} == before


def named(rig: Rig) -> dict[str, Object]:
    return {f"{item['kind']}/{item['metadata']['name']}": item for item in rig.lab.items(WATCHED)}


def test_replaced_child_is_put_back_in_place(rig: Rig, demo: str) -> None:
    del demo
    service = rig.lab.get("svc", "demo-gateway")
    uid = service["metadata"]["uid"]
    service["spec"] |= {"selector": {"app": "nothing"}}
    service["metadata"].pop("managedFields", None)
    rig.lab.run("replace", "-f", "-", stdin=json.dumps(service))

    def component() -> str | None:
        chosen: Object = rig.lab.get("svc", "demo-gateway")["spec"]["selector"]
        return None if "app" in chosen else chosen.get(names.LABEL_COMPONENT)

    until("its selector is back", lambda: component() == "gateway", 20)
    assert rig.lab.get("svc", "demo-gateway")["metadata"]["uid"] == uid


def test_autoscaler_owns_the_replicas_it_wrote_and_restarts_are_left_alone(rig: Rig, demo: str) -> None:
    scale = {"spec": {"replicas": 3}}
    rig.lab.patch("deploy", "demo-engine", scale, "--subresource=scale", "--field-manager=kube-controller-manager")
    until("status follows", lambda: rig.lab.status(demo)["serving"]["summary"] == "3/3", 30)
    rig.lab.run("rollout", "restart", "deploy/demo-engine")
    edit(rig, policyServing={"args": ["--y"]})
    generation = rig.lab.get(names.PLURAL, demo)["metadata"]["generation"]
    until("the edit is observed", lambda: rig.lab.status(demo)["observedGeneration"] == generation, 20)
    rig.lab.until_phase(demo, "Running", 60)
    assert rig.lab.get("deploy", "demo-engine")["spec"]["replicas"] == 3
    assert "kubectl.kubernetes.io/restartedAt" in template(rig, "engine")["metadata"]["annotations"]


def test_scaling_the_training_scales_engines_and_rolls_nothing(rig: Rig, demo: str) -> None:
    before, pods = revisions(rig), rig.uids(demo, "engine")
    rig.lab.run("scale", f"{names.PLURAL}/{demo}", "--replicas=3")
    until("three engines are ready", lambda: rig.lab.status(demo)["serving"]["summary"] == "3/3", 30)
    assert pods < rig.uids(demo, "engine")
    assert revisions(rig) == before
    scale = json.loads(rig.lab.run("get", names.PLURAL, demo, "--subresource=scale", "-o", "json"))
    assert scale["status"]["replicas"] == 3
    assert names.LABEL_COMPONENT in scale["status"]["selector"]


def test_one_engine_at_a_time_leaves_while_two_exist(rig: Rig, demo: str) -> None:
    rig.lab.run("scale", f"{names.PLURAL}/{demo}", "--replicas=2")
    until("two engines are ready", lambda: rig.lab.status(demo)["serving"]["summary"] == "2/2", 30)
    old = rig.uids(demo, "engine")
    engine = f"{demo}-engine-"

    def loads(pod: Object) -> Object:
        new = pod["metadata"]["name"].startswith(engine) and pod["metadata"]["uid"] not in old
        return waiting(pod) if new else ready(pod)

    rig.kubelet.decide = loads
    edit(rig, policyServing={"args": ["--z"]})
    until("a new engine loads", lambda: rig.uids(demo, "engine") - old, 30)
    time.sleep(3)
    assert len(rig.uids(demo, "engine") & old) == len(rig.uids(demo, "engine") - old) == 1
    assert rig.lab.get("deploy", "demo-engine")["status"]["readyReplicas"] == 1
    rig.kubelet.decide = ready
    until("both are new", lambda: rig.uids(demo, "engine").isdisjoint(old), 60)
    rig.lab.until_phase(demo, "Running", 60)
    assert rig.lab.status(demo)["serving"]["summary"] == "2/2"


def test_rotated_secret_rolls_its_users_and_a_late_one_is_found(rig: Rig, demo: str) -> None:
    before = {name: rig.uids(demo, name) for name in ("engine", "gateway", "judge", "trainer")}
    rig.lab.secret("judge-key", key="sk-other-4567")
    until("judges are replaced", lambda: rig.uids(demo, "judge").isdisjoint(before["judge"]), 40)
    rig.lab.until_phase(demo, "Running", 30)
    assert {name for name in before if rig.uids(demo, name) != before[name]} == {"judge"}


def test_unhealthy_training_can_be_suspended_and_is_so_only_when_its_pods_are_gone(rig: Rig, demo: str) -> None:
    crash = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "x"}}}
    rig.kubelet.decide = lambda pod: waiting(pod, container=crash)
    held = rig.lab.pods(demo, "trainer")[0]["metadata"]["name"]
    rig.lab.patch("pod", held, {"metadata": {"finalizers": ["example.com/held"]}})
    edit(rig, suspend=True)
    until("it is suspending", lambda: rig.lab.status(demo)["phase"] == "Suspending", 20)
    time.sleep(3)
    assert rig.lab.status(demo)["phase"] == "Suspending"
    assert rig.lab.condition(demo, "Suspended")["message"] == "1 pods are still ending"
    rig.lab.patch("pod", held, {"metadata": {"finalizers": None}})
    rig.lab.until_phase(demo, "Suspended", 30)
    assert rig.lab.items("pods") == []
    assert {item["metadata"]["name"] for item in rig.lab.items("pvc")} == {"demo-weights", "demo-experience"}
    rig.kubelet.decide = ready
    edit(rig, suspend=False)
    rig.lab.until_phase(demo, "Running", 60)


def test_queue_labels_of_the_training_reach_its_workloads_and_go_again(rig: Rig, demo: str) -> None:
    label = "kueue.x-k8s.io/queue-name"

    def queued() -> set[str]:
        return {d["metadata"]["name"] for d in rig.lab.items("deploy") if d["metadata"]["labels"].get(label) == "team"}

    rig.lab.run("label", names.PLURAL, demo, f"{label}=team")
    everything = {f"demo-{name}" for name in ("engine", "gateway", "judge", "trainer")}
    until("workloads carry it", lambda: queued() == everything, 20)
    rig.lab.run("label", names.PLURAL, demo, f"{label}-")
    until("workloads lost it", lambda: queued() == set(), 20)


def test_training_of_another_manager_gets_nothing(rig: Rig) -> None:
    rig.lab.apply(training("other", managedBy="kueue.x-k8s.io/multikueue"))
    time.sleep(4)
    assert rig.lab.items("deploy,cm,svc", f"{names.LABEL_TRAINING}=other") == []
    assert "status" not in rig.lab.get(names.PLURAL, "other")
    rig.lab.run("delete", names.PLURAL, "other")


def test_trainer_of_several_pods_meets_by_name_and_rolls_together(rig: Rig, demo: str) -> None:
    edit(rig, policyTraining={"nodes": 3})
    until("three trainer pods run", lambda: rig.lab.status(demo).get("trainer", {}).get("summary") == "3/3", 60)
    assert rig.lab.get("deploy", "demo-trainer") == {}
    service = rig.lab.get("svc", names.ranks(demo))["spec"]
    assert (service["clusterIP"], service["publishNotReadyAddresses"]) == ("None", True)
    pods = rig.lab.pods(demo, "trainer")
    assert sorted(pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] for pod in pods) == ["0", "1", "2"]
    env = {item["name"]: item for item in pods[0]["spec"]["containers"][0]["env"]}
    assert env[names.ENV_RENDEZVOUS]["value"] == f"demo-trainer-0.demo-ranks.{rig.lab.namespace}.svc:29500"
    before = rig.uids(demo, "trainer")
    edit(rig, policyTraining={"learningRate": 0.25})
    until("all pods are new", lambda: len(new := rig.uids(demo, "trainer")) == 3 and new.isdisjoint(before), 60)
    rig.lab.until_phase(demo, "Running", 30)
    edit(rig, policyTraining={"nodes": 1})
    until("one Deployment again", lambda: rig.lab.status(demo).get("trainer", {}).get("summary") == "1/1", 60)
    until("the set is gone", lambda: rig.lab.get("sts", "demo-trainer") == {}, 30)


def test_unknown_field_of_a_pod_template_is_named_and_stops_only_its_component(rig: Rig, demo: str) -> None:
    body = rig.lab.get(names.PLURAL, demo)["spec"]["rewardJudging"]["podTemplate"]
    edit(rig, rewardJudging={"podTemplate": {**body, "spec": {**body["spec"], "nodeSelectr": {"a": "b"}}}})
    until("it is named", lambda: rig.lab.condition(demo, "ConfigValid").get("reason") == "ApplyFailed", 20)
    message = rig.lab.condition(demo, "ConfigValid")["message"]
    assert "Deployment demo-judge" in message and "nodeSelectr" in message
    assert rig.lab.condition(demo, "ServingReady")["status"] == "True"


def test_namespace_with_trainings_goes_also_without_an_operator(rig: Rig) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "leaving"}}
    kubectl("apply", "-f", "-", stdin=json.dumps(namespace), kubeconfig=rig.plane.kubeconfig)
    body = training("demo") | {"metadata": {"name": "demo", "namespace": "leaving"}}
    kubectl("apply", "-f", "-", stdin=json.dumps(body), kubeconfig=rig.plane.kubeconfig)

    def there() -> str:
        return kubectl("-n", "leaving", "get", "deploy", "-o", "name", kubeconfig=rig.plane.kubeconfig)

    until("its children are there", lambda: "demo-engine" in there(), 30)
    rig.operator.kill()
    try:
        kubectl("delete", "namespace", "leaving", "--timeout=60s", kubeconfig=rig.plane.kubeconfig, timeout=90)
    finally:
        rig.operator.start()
        rig.operator.until_leading()
