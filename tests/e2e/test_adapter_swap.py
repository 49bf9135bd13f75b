"""The whole loop with LoRA adapters: users talk all the time, versions change under them, and nobody is refused.

One training for all rows; they run in order. About three minutes.
"""

import json
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from openclaw_core import kube, names
from openclaw_core.versions import WeightVersion
from tests.e2e.running_training import RunningTraining, running_training, until

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

LORA = {"rank": 8, "alpha": 16, "publish": "adapter"}
SWAPS = 4
LONG_AGO_SEC = 30.0
"""A version's grace is 5 s, and engines are told at most every 5 s what they may unload; the rest is a busy machine."""
LIMIT = 5e-5
"""Largest mean difference of a token's logprob between engine and trainer; float32 on both sides."""
_READ_SPANS = f"""
import json, sqlite3
store = sqlite3.connect("file:{names.EXPERIENCE_DIR}/experience.db?mode=ro", uri=True, timeout=10)
print(json.dumps([json.loads(row[0]) for row in store.execute("select spans from contents where spans is not null")]))
"""
_READ_ADAPTERS = (
    "import urllib.request as u; "
    f"print(u.urlopen('http://127.0.0.1:{names.PORT_SGLANG}/openclaw/adapters', timeout=10).read().decode())"
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def training() -> AsyncIterator[RunningTraining]:
    learning = {"lora": LORA, "learningRate": 1e-4}
    async with running_training("openclaw-adapters", policyTraining=learning) as found:
        yield found


async def _adapters(training: RunningTraining) -> dict[str, int]:
    """What SGLang holds, and how many requests use each."""
    text = await training.python_in(names.ENGINE, _READ_ADAPTERS)
    found: dict[str, int] = json.loads(text.splitlines()[-1])
    return found


async def test_versions_are_swapped_without_a_hold_and_without_a_refusal(training: RunningTraining) -> None:
    first = training.history.served_number()
    before = await training.stats()

    async def missing() -> str | None:
        served = training.history.served_number()
        return None if served >= first + SWAPS else f"served v{served}, began at v{first}"

    await until(f"{SWAPS} more versions", 240, missing)
    stats = await training.stats()
    assert stats.trained > before.trained
    assert training.history.holds == []
    assert stats.refused.get("paused", 0) == 0
    # Users who came before the first engine was there count from before.
    assert stats.dropped.get("upstream_error", 0) == before.dropped.get("upstream_error", 0)
    assert training.history.faults() == []


async def test_every_turn_was_sampled_by_one_version(training: RunningTraining) -> None:
    turns = json.loads(await training.python_in(names.GATEWAY, _READ_SPANS))
    assert len(turns) > 10
    assert {len(spans) for spans in turns} == {1}
    assert len({spans[0]["version"] for spans in turns}) >= SWAPS


async def test_engine_and_trainer_agree_on_the_adapters_logprobs(training: RunningTraining) -> None:
    updates = (await training.trainer_state()).updates
    fresh = [update.logprob_abs_diff_fresh for update in updates if update.logprob_abs_diff_fresh is not None]
    assert fresh and max(fresh) < LIMIT, fresh


async def test_version_directory_holds_the_adapter_alone(training: RunningTraining) -> None:
    number = training.history.announced_number()
    script = (
        f"import json, pathlib; root = pathlib.Path({names.WEIGHTS_DIR!r}); "
        "newest = max(int(p.name[1:]) for p in root.glob('v*') if p.name[1:].isdigit()); "
        "print(json.dumps([newest, sorted(p.name for p in (root / f'v{newest}').iterdir())]))"
    )
    newest, files = json.loads(await training.python_in(names.TRAINER, script))
    assert newest >= number
    assert files == ["adapter_config.json", "adapter_model.safetensors", "manifest.json"]


async def test_old_adapters_leave_the_engine(training: RunningTraining) -> None:
    def left_long_ago() -> set[str]:
        now = time.monotonic()
        return {name for name, left in training.history.left_at.items() if now - left > LONG_AGO_SEC}

    async def too_few() -> str | None:
        gone = left_long_ago()
        return None if len(gone) > 4 else f"left long ago: {gone}"

    await until("more versions that left long ago than an engine serves at once", 120, too_few)
    for _ in range(3):
        due, held = left_long_ago(), await _adapters(training)
        assert held and not held.keys() & due, f"SGLang holds {held}, of which {held.keys() & due} left long ago"


async def test_engine_that_is_killed_comes_back_with_the_serving_adapter(training: RunningTraining) -> None:
    before = await training.pod(names.ENGINE)
    await training.objects.delete(kube.path("v1", "pods", training.namespace, before.name), uid=before.uid)
    await training.is_back(names.ENGINE, before, within_sec=180)
    held = [WeightVersion.parse(name).number for name in await _adapters(training)]
    assert held and max(held) >= 1
    await training.goes_on(within_sec=150)
    assert training.history.holds == []
    assert (await training.stats()).refused.get("paused", 0) == 0
