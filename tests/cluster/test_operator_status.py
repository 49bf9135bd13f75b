"""What a training's status says while its pods fare badly. Real API server and controllers, pods on paper."""

import json
import time
from typing import Any

import pytest

from openclaw_core import names
from tests.cluster.lab import training, until
from tests.cluster.own_operator import Rig, ready, waiting

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
Object = dict[str, Any]


@pytest.fixture
def demo(rig: Rig) -> Any:
    """A running training; its pods fare well again afterwards, and it goes."""
    rig.kubelet.decide = ready
    rig.lab.apply(training())
    rig.lab.until_phase("demo", "Running", 150)
    yield "demo"
    rig.kubelet.decide = ready
    rig.lab.run("delete", names.PLURAL, "demo", "--ignore-not-found")
    until("its pods are gone", lambda: not rig.lab.items("pods,deploy"), 60)


def component(pod: Object) -> str:
    return str(pod["metadata"]["labels"][names.LABEL_COMPONENT])


def reason(rig: Rig, kind: str) -> str:
    return str(rig.lab.condition("demo", kind).get("reason"))


def is_new(pod: Object, part: str, old: set[str]) -> bool:
    """The pod that takes the place of `old` ones: what those are said to be would be told first, then be over."""
    return component(pod) == part and pod["metadata"]["uid"] not in old


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
}
GATED = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "pod is blocked by gates"}
TRACE = "Traceback (most recent call last):\n  File x\nValueError: no model at /weights/base\n"


@pytest.mark.parametrize(
    ("pod", "why", "words"),
    [
        ({"condition": UNSCHEDULABLE}, "Unschedulable", "Insufficient nvidia.com/gpu"),
        ({"condition": GATED}, "AwaitingAdmission", "waits for its gates"),
        (
            {"container": {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such tag"}}}},
            "ImagePullFailed",
            "no such tag",
        ),
        (
            {"container": {"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}},
            "OutOfMemory",
            "raise resources.limits",
        ),
        (
            {
                "container": {
                    "restartCount": 4,
                    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "message": TRACE}},
                }
            },
            "CrashLoop",
            "last words: ValueError: no model at /weights/base",
        ),
    ],
)
def test_lost_pod_takes_ready_back_and_its_cause_reaches_the_message(
    rig: Rig, demo: str, pod: Object, why: str, words: str
) -> None:
    old = rig.uids(demo, "engine")
    rig.kubelet.decide = lambda item: waiting(item, **pod) if is_new(item, "engine", old) else ready(item)
    rig.lab.run("delete", "pod", rig.lab.pods(demo, "engine")[0]["metadata"]["name"])
    for kind in ("ServingReady", "Ready"):
        until(f"{kind} says {words}", lambda kind=kind: words in rig.lab.condition(demo, kind)["message"], 60)
    assert reason(rig, "ServingReady") == why
    assert rig.lab.condition(demo, "Ready")["status"] == "False"
    assert rig.lab.status(demo)["serving"]["summary"] == "0/1"
    rig.kubelet.decide = ready
    rig.lab.until_phase(demo, "Running", 30)


def test_training_is_not_ready_before_the_edited_revision_runs_and_is_observed(rig: Rig, demo: str) -> None:
    old = rig.uids(demo, "judge")
    rig.kubelet.decide = lambda pod: None if is_new(pod, "judge", old) else ready(pod)
    rig.lab.patch(names.PLURAL, demo, {"spec": {"rewardJudging": {"judgeTimeoutSec": 31}}})
    generation = rig.lab.get(names.PLURAL, demo)["metadata"]["generation"]
    until("the edit is observed", lambda: rig.lab.status(demo)["observedGeneration"] == generation, 20)
    until("it is not ready", lambda: rig.lab.condition(demo, "Ready")["status"] == "False", 20)
    time.sleep(2)
    ready_now = rig.lab.condition(demo, "Ready")
    assert (ready_now["status"], ready_now["observedGeneration"]) == ("False", generation)
    rig.kubelet.decide = ready
    rig.lab.until_phase(demo, "Running", 30)


def test_times_of_conditions_stand_still_and_an_idle_operator_writes_nothing(rig: Rig, demo: str) -> None:
    watched = f"{names.PLURAL},deploy,svc,cm,sa,role,rolebinding,pvc,pdb,netpol"
    time.sleep(4)
    before, conditions = rig.versions(watched), rig.lab.status(demo)["conditions"]
    time.sleep(20)
    assert rig.versions(watched) == before
    assert rig.lab.status(demo)["conditions"] == conditions


def test_each_transition_makes_one_event(rig: Rig, demo: str) -> None:
    crash = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such tag"}}}
    rig.kubelet.decide = lambda pod: waiting(pod, container=crash) if component(pod) == "judge" else ready(pod)
    until("JudgingReady says so", lambda: reason(rig, "JudgingReady") == "ImagePullFailed", 20)
    rig.lab.run("label", "deploy", "demo-judge", "poke=1")
    time.sleep(3)
    uid = rig.lab.get(names.PLURAL, demo)["metadata"]["uid"]
    mine = [event for event in rig.lab.events(demo) if event["involvedObject"]["uid"] == uid]
    told = [(event["type"], event["message"]) for event in mine if event["reason"] == "ImagePullFailed"]
    assert [kind for kind, _ in told] == ["Warning"], told


def test_start_without_progress_says_so_after_the_deadline(rig: Rig, demo: str) -> None:
    old = rig.uids(demo, "judge")
    rig.kubelet.decide = lambda pod: waiting(pod) if is_new(pod, "judge", old) else ready(pod)
    rig.lab.run("delete", "pod", rig.lab.pods(demo, "judge")[0]["metadata"]["name"])
    stuck = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}

    def told() -> bool:
        # The controller's own verdict would take minutes; it writes the same condition.
        rig.lab.patch("deploy", "demo-judge", {"status": {"conditions": [stuck]}}, "--subresource=status")
        return reason(rig, "JudgingReady") == "ProgressDeadlineExceeded"

    until("the deadline is told", told, 30, every=1.0)
    assert "no progress for" in rig.lab.condition(demo, "JudgingReady")["message"]


def test_training_never_carries_a_finalizer_or_a_kopf_annotation(rig: Rig, demo: str) -> None:
    metadata = rig.lab.get(names.PLURAL, demo)["metadata"]
    assert "finalizers" not in metadata
    assert "kopf" not in json.dumps(metadata.get("annotations", {}))


def test_engine_has_an_hour_to_load_its_model_before_a_probe_ends_it(rig: Rig, demo: str) -> None:
    (container,) = rig.lab.get("deploy", f"{demo}-engine")["spec"]["template"]["spec"]["containers"]
    startup = rig.lab.get("deploy", f"{demo}-trainer")["spec"]["template"]["spec"]["containers"][0]["startupProbe"]
    assert startup["failureThreshold"] * startup["periodSeconds"] >= 1800  # the stand-in quickens the period
    assert container["startupProbe"]["failureThreshold"] >= 1800
    assert container["startupProbe"]["httpGet"]["path"] == "/healthz"


def test_metrics_tell_of_a_training_and_forget_it_with_it(rig: Rig, demo: str) -> None:
    uid = rig.lab.get(names.PLURAL, demo)["metadata"]["uid"]
    text = rig.operator.get("/metrics")[1]
    assert f'uid="{uid}"' in text
    ready_series = f'openclawrl_training_condition{{condition="Ready",namespace="{rig.lab.namespace}",training="demo"}}'
    assert f"{ready_series} 1.0" in text
    assert rig.operator.metric('openclawrl_operator_writes{kind="Deployment"}') > 0
    rig.lab.run("delete", names.PLURAL, demo)
    until("its series are gone", lambda: uid not in rig.operator.get("/metrics")[1], 20)
