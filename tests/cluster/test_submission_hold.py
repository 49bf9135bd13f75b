"""`policyServing.hold` on a real API server with the real gateway: refused at once, no pod rolled, over by itself."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from openclaw_core import names
from tests.cluster.lab import OPERATOR_NAMESPACE, Lab, images, kubectl, training, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

_ASK = """
import json, urllib.error, urllib.request
body = json.dumps({"model": "policy", "messages": [{"role": "user", "content": "Hi"}]}).encode()
url, kind = "http://127.0.0.1:30000/v1/chat/completions", {"Content-Type": "application/json"}
try:
    answer = urllib.request.urlopen(urllib.request.Request(url, body, kind), timeout=30)
except urllib.error.HTTPError as refused:
    answer = refused
print(json.dumps([answer.status, answer.headers.get("Retry-After"), json.load(answer)]))
"""


@pytest.fixture(scope="module")
def demo(lab: Lab) -> str:
    body = training()
    gateway = {"spec": {"containers": [{"name": "gateway", "image": images()["gateway"]}]}}
    body["spec"]["policyServing"]["gateway"] = {"podTemplate": gateway}
    lab.apply(body)
    lab.until_phase("demo", "Running")
    return "demo"


def ask(lab: Lab) -> tuple[int, str | None, dict[str, Any]]:
    """Status, Retry-After and error of one chat completion, asked in the gateway's pod."""
    pod = lab.pods("demo", "gateway")[0]["metadata"]["name"]
    status, wait, body = json.loads(lab.run("exec", pod, "--", "python", "-c", _ASK))
    return status, wait, body.get("error", {})


def hold(lab: Lab, seconds: float, reason: str) -> datetime:
    moment = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=seconds)
    wanted = {"until": moment.strftime("%Y-%m-%dT%H:%M:%SZ"), "reason": reason}
    lab.patch(names.PLURAL, "demo", {"spec": {"policyServing": {"hold": wanted}}})
    return moment


def note(lab: Lab) -> str | None:
    found: str | None = lab.get("lease", "demo-weight-sync")["metadata"]["annotations"].get(names.ANNOTATION_HOLD)
    return found


def gateways(lab: Lab) -> list[str]:
    return [pod["metadata"]["uid"] for pod in lab.pods("demo", "gateway")]


def test_hold_refuses_until_it_is_lifted_and_rolls_no_pod(lab: Lab, demo: str) -> None:
    before = gateways(lab)
    hold(lab, 3600, "storage is being moved")
    until("it is held", lambda: lab.condition(demo, "SubmissionsHeld").get("status") == "True", 30)
    status, wait, error = ask(lab)
    assert (status, error["code"]) == (503, "submission_held")
    assert "storage is being moved" in error["message"]
    assert wait is not None and 3400 < int(wait) <= 3600
    assert "storage is being moved" in lab.status(demo)["message"]
    assert [event["reason"] for event in lab.events(demo) if event["reason"] == "OnHold"] == ["OnHold"]
    lab.patch(names.PLURAL, demo, {"spec": {"policyServing": {"hold": None}}})
    until("the Lease says nothing of it", lambda: note(lab) is None, 30)
    until("it is not held", lambda: lab.condition(demo, "SubmissionsHeld").get("reason") == "NotOnHold", 30)
    assert ask(lab)[2]["code"] == "no_engine"  # stand-ins serve nothing: it went past the hold
    assert gateways(lab) == before
    assert lab.status(demo)["phase"] == "Running"


def test_hold_ends_by_itself_while_the_operator_is_away(lab: Lab, demo: str) -> None:
    ends = hold(lab, 25, "short")
    until("it is held", lambda: note(lab), 20)
    scale = ("-n", OPERATOR_NAMESPACE, "scale", "deployment", "--all")
    kubectl(*scale, "--replicas=0")
    try:
        assert ask(lab)[2]["code"] == "submission_held"
        until("it is past", lambda: datetime.now(UTC) > ends, 40)
        assert ask(lab)[2]["code"] == "no_engine"
        assert note(lab) is not None
    finally:
        kubectl(*scale, "--replicas=1")
    until("the operator says so", lambda: lab.condition(demo, "SubmissionsHeld").get("reason") == "HoldOver", 60)


def test_hold_further_ahead_than_a_day_is_reported_and_not_enforced(lab: Lab, demo: str) -> None:
    hold(lab, 3 * 86400, "too long")
    until("it is refused", lambda: lab.condition(demo, "ConfigValid").get("reason") == "HoldTooLong", 30)
    assert "spec.policyServing.hold.until" in lab.condition(demo, "ConfigValid")["message"]
    assert ask(lab)[2]["code"] == "no_engine"
    lab.patch(names.PLURAL, demo, {"spec": {"policyServing": {"hold": None}}})
    lab.until_phase(demo, "Running", 30)
