"""Clients' keys in a Secret, with the real gateway: named, rotated without a restart, missed before anything starts."""

import json
from typing import Any

import pytest

from openclaw_core import names
from tests.cluster.lab import Lab, images, training, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

_MODELS = """
import json, sys, urllib.error, urllib.request
request = urllib.request.Request("http://127.0.0.1:30000/v1/models", headers={"x-api-key": sys.argv[1]})
try:
    print(urllib.request.urlopen(request, timeout=10).status)
except urllib.error.HTTPError as refused:
    print(refused.status)
"""


def demo(lab: Lab) -> dict[str, Any]:
    body = training()
    gateway = {"spec": {"containers": [{"name": "gateway", "image": images()["gateway"]}]}}
    body["spec"]["policyServing"]["gateway"] = {"podTemplate": gateway, "apiKeysSecretRef": {"name": "clients"}}
    lab.apply(body)
    return body


def status_with(lab: Lab, key: str) -> int:
    pod = lab.pods("demo", "gateway")[0]["metadata"]["name"]
    return int(lab.run("exec", pod, "--", "python", "-c", _MODELS, key))


def test_keys_are_asked_for_and_rotate_without_a_restart(lab: Lab) -> None:
    demo(lab)
    until("the Secret is missed", lambda: lab.condition("demo", "SecretsResolved").get("status") == "False", 60)
    message = lab.condition("demo", "SecretsResolved")["message"]
    assert "spec.policyServing.gateway.apiKeysSecretRef" in message and "--from-literal=alice=" in message
    assert lab.get("deployment", names.component("demo", names.GATEWAY)) == {}
    lab.secret("clients", alice="key-of-alice", bob="key-of-bob")
    lab.until_phase("demo", "Running")
    (pod,) = lab.pods("demo", "gateway")
    assert [status_with(lab, key) for key in ("key-of-alice", "key-of-bob", "alice", "")] == [200, 200, 401, 401]
    lab.run("delete", "secret", "clients")
    lab.secret("clients", alice="new-key-of-alice")
    until("the new key counts", lambda: status_with(lab, "new-key-of-alice") == 200, 150, every=2)
    assert [status_with(lab, key) for key in ("key-of-alice", "key-of-bob")] == [401, 401]
    (same,) = lab.pods("demo", "gateway")
    restarts = same["status"]["containerStatuses"][0]["restartCount"]
    assert (same["metadata"]["uid"], restarts) == (pod["metadata"]["uid"], 0)
    log = lab.run("logs", pod["metadata"]["name"])
    assert "key-of" not in log and "gone ['bob']" in json.dumps(log)
