"""A judge model served in the cluster: judges ask it, and nobody gives it other orders. Real SGLang; two minutes.

The tiny model judges, and writes nothing that is a score: judges count its answers as `unparsed`.
"""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from openclaw_core import kube, names
from tests.e2e.running_training import RunningTraining, running_training, until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
LONGER = {"name": "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "value": "1"}
DEPLOYED = {
    "model": {"path": "base"},
    "device": "cpu",
    # What judges ask is longer than the 512 tokens the tiny model was made for.
    "args": ["--context-length=4096"],
    "podTemplate": {"spec": {"containers": [{"name": names.JUDGE_MODEL, "env": [LONGER]}]}},
}
_STATE = f"""
import urllib.request as u
print(u.urlopen("http://127.0.0.1:{names.PORT_JUDGE}/state", timeout=10).read().decode())
"""
_ORDER = """
import json, urllib.error, urllib.request as u
request = u.Request("URL", json.dumps({"model_path": "/tmp"}).encode(), {"Content-Type": "application/json"})
try:
    print(u.urlopen(request, timeout=10).status)
except urllib.error.HTTPError as refused:
    print(refused.code)
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def training() -> AsyncIterator[RunningTraining]:
    judging, api = {"deployed": DEPLOYED}, {"baseUrl": None}
    async with running_training("openclaw-judged-here", trains=False, rewardJudging=judging, api=api) as found:
        yield found


async def test_judges_ask_the_model_and_get_answers(training: RunningTraining) -> None:
    async def missing() -> str | None:
        state = json.loads(await training.python_in(names.JUDGE, _STATE))
        return None if state["counts"].get("unparsed", 0) >= 3 and state["ok"] else str(state)

    await until("turns that the model judged in words", 120, missing)
    found = await training.condition("JudgingReady")
    assert (found["status"], found["reason"]) == ("True", "AllPodsReady"), found
    path = kube.path(names.API_VERSION, names.PLURAL, training.namespace, training.name)
    assert (await training.objects.get(path))["status"]["judgeModel"]["summary"] == "1/1"


async def test_model_takes_no_orders(training: RunningTraining) -> None:
    url = f"http://{names.component(training.name, names.JUDGE_MODEL)}:{names.PORT_SGLANG}/update_weights_from_disk"
    said = await training.python_in(names.JUDGE, _ORDER.replace("URL", url))
    assert said.split() == ["401"]
