"""Whether a training's engines may get versions from its trainer, and from which pod."""

import pytest

from openclaw_core import names
from openclaw_operator import facts
from openclaw_operator.builders import network
from openclaw_operator.observe import Observation
from tests.unit.operator import trainings

DISTRIBUTED = {"storage": {"weights": {"transfer": "distributed"}}}
ADAPTER = {"policyTraining": {"lora": {"publish": "adapter"}}}


def _pod(index: int, *, ready: bool = True, label: str | None = None) -> trainings.Object:
    pod = trainings.pod(names.TRAINER, index=index, ready=ready, podIP=f"10.0.0.{index}")
    if label is not None:
        pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] = label
    return pod


@pytest.mark.parametrize(
    ("spec", "pods", "sender"),
    [
        (DISTRIBUTED, [_pod(5)], "10.0.0.5"),
        ({}, [_pod(5)], None),
        (DISTRIBUTED | ADAPTER, [_pod(5)], None),
        (DISTRIBUTED, [_pod(5, ready=False)], None),
        (DISTRIBUTED, [_pod(6, label="1"), _pod(5, label="0")], "10.0.0.5"),
        (DISTRIBUTED, [], None),
    ],
    ids=["one pod", "from disk", "adapters", "not ready", "rank 0 of several", "no trainer"],
)
def test_sender_is_the_ready_lead_of_a_trainer_that_broadcasts(
    spec: trainings.Object, pods: list[trainings.Object], sender: str | None
) -> None:
    training = trainings.training(**spec)
    seen = Observation(body=trainings.body(**spec), children={}, pods=pods)
    assert facts.world(training, seen).sender == sender


def test_policies_let_a_transfers_members_reach_each_other_and_only_then() -> None:
    def peers(spec: trainings.Object, component: str) -> set[str]:
        found = network.policies(trainings.training(**spec), [component], network.Network(enforced=True))
        rules = [rule for rule in found[0]["spec"]["ingress"] if "ports" not in rule]
        selectors = [peer["podSelector"]["matchLabels"] for rule in rules for peer in rule["from"]]
        return {labels[names.LABEL_COMPONENT] for labels in selectors}

    assert peers(DISTRIBUTED, names.ENGINE) == {names.TRAINER, names.ENGINE}
    assert peers(DISTRIBUTED, names.TRAINER) == {names.TRAINER, names.ENGINE}
    assert peers({}, names.ENGINE) == set()
    assert peers({}, names.TRAINER) == {names.TRAINER}
