"""A training whose model is not on the volume yet: it says which file is missing, and goes on when it comes."""

from functools import partial

import pytest

from examples.quickstart import manifests
from openclaw_core import names
from tests.cluster.lab import Lab, images, install_operator, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

HEALED_WITHIN_SEC = 20
MISSING = f"spec.model.path: there is no {names.WEIGHTS_DIR}/base/config.json; put the model there, or correct the path"


def misses_model(lab: Lab, name: str, kind: str) -> bool:
    return bool(lab.condition(name, kind).get("reason") == "ModelMissing")


def test_missing_model_is_named_by_engine_and_trainer_and_healed_within_20_seconds() -> None:
    install_operator()
    with Lab.fresh() as lab:
        claim, job = manifests.base_model("tiny", images())
        body = manifests.training("tiny", users=False)
        name = body["metadata"]["name"]
        for manifest in (claim, manifests.judge_key("sk-real-0123"), body):
            lab.apply(manifest)
        for kind, component in (("ServingReady", names.ENGINE), ("TrainingReady", names.TRAINER)):
            until(f"{kind} says so", partial(misses_model, lab, name, kind), 120)
            assert lab.condition(name, kind)["message"] == f"{component}: {MISSING}"
        told = [event["message"] for event in lab.events(name) if event["reason"] == "ModelMissing"]
        assert sorted(told) == [f"ServingReady: engine: {MISSING}", f"TrainingReady: trainer: {MISSING}"]
        lab.apply(job)
        lab.run("wait", "--for=condition=complete", "job/prepare-model", "--timeout=60s", timeout=70)
        until("nobody misses it", lambda: "ModelMissing" not in str(lab.status(name)), HEALED_WITHIN_SEC)
        restarts = [
            status["restartCount"] for pod in lab.items("pods") for status in pod["status"].get("containerStatuses", [])
        ]
        assert set(restarts) == {0}, "a process ended instead of waiting"
        lab.until_phase(name, "Running", 180)
