"""A training whose model is not on the volume yet: it says which file is missing, and goes on when it comes."""

import json
import secrets
from pathlib import Path
from typing import Any

import pytest

from examples.quickstart import bring_up, manifests
from examples.quickstart.commands import Cluster
from examples.quickstart.console import Clock
from examples.quickstart.options import Options
from openclaw_core import names
from tests.e2e.running_training import removed_afterwards, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NAMESPACE, NAME = "openclaw-missing", "quickstart"
HEALED_WITHIN_SEC = 20
MISSING = (
    f"spec.model.path: there is no {names.WEIGHTS_DIR}/later/config.json; put the model there, or correct the path"
)


async def test_missing_model_is_named_by_engine_and_trainer_and_healed_within_20_seconds() -> None:
    cluster = Cluster.from_environment()
    options = Options("tiny", "normal", None, 0, 0, NAMESPACE, None, None, None, build=False, out=Path())
    steps = bring_up.BringUp(cluster, Clock(), options, secrets.token_urlsafe(24))
    async with removed_afterwards(cluster, NAMESPACE):
        await steps.cluster_and_images()
        await steps.operator_and_namespace()
        body = manifests.training("tiny", users=False)
        body["spec"]["model"]["path"] = "later"
        await cluster.apply([body], NAMESPACE)
        for kind, component in (("ServingReady", names.ENGINE), ("TrainingReady", names.TRAINER)):
            await until(f"{kind} to miss the model", 120, lambda: _otherwise(cluster, kind, f"{component}: {MISSING}"))  # noqa: B023 - awaited here
        assert await _warnings(cluster) == [
            f"ServingReady: engine: {MISSING}",
            f"TrainingReady: trainer: {MISSING}",
        ]
        await _put_model_there(cluster, steps.images)
        await until("nobody to miss it", HEALED_WITHIN_SEC, lambda: _still_missed(cluster))
        await steps.everything(NAME)
        assert await _restarts(cluster) == {0}, "a process ended instead of waiting"


async def _conditions(cluster: Cluster) -> dict[str, dict[str, Any]]:
    found = await cluster.get("-n", NAMESPACE, names.PLURAL, NAME)
    return {condition["type"]: condition for condition in found.get("status", {}).get("conditions", [])}


async def _otherwise(cluster: Cluster, kind: str, message: str) -> str | None:
    now = (await _conditions(cluster)).get(kind, {})
    return None if (now.get("reason"), now.get("message")) == ("ModelMissing", message) else str(now)


async def _still_missed(cluster: Cluster) -> str | None:
    missing = [one for one in (await _conditions(cluster)).values() if one["reason"] == "ModelMissing"]
    return str(missing) if missing else None


async def _warnings(cluster: Cluster) -> list[str]:
    listed = await cluster.get("-n", NAMESPACE, "events", "--field-selector", f"involvedObject.name={NAME}")
    return sorted(event["message"] for event in listed["items"] if event["reason"] == "ModelMissing")


async def _put_model_there(cluster: Cluster, images: dict[str, str]) -> None:
    """The Job that writes the base model, with another place to write it to."""
    text = json.dumps(manifests.base_model("tiny", images)[1])
    job = json.loads(text.replace("/weights/base", "/weights/later").replace("prepare-model", "prepare-later"))
    await cluster.apply([job], NAMESPACE)
    await cluster.run_kubectl("-n", NAMESPACE, "wait", "--for=condition=complete", "job/prepare-later", "--timeout=60s")


async def _restarts(cluster: Cluster) -> set[int]:
    selector = f"{names.LABEL_TRAINING}={NAME}"
    pods = await cluster.get("-n", NAMESPACE, "pods", "-l", selector)
    return {status["restartCount"] for pod in pods["items"] for status in pod["status"]["containerStatuses"]}
