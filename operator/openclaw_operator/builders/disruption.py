"""PodDisruptionBudgets: a drained node takes one engine, or one of several gateways, at a time.

One pod may always go, so that a single engine does not block a node's drain for ever. Judge, trainer and environment
have none: they lose nothing that is not leased again.
"""

from typing import Any

from openclaw_core import names
from openclaw_operator.builders import metadata
from openclaw_operator.training import Training

Object = dict[str, Any]


def budgets(training: Training) -> list[Object]:
    shared_store = training.spec.queue.store == "postgres"
    return [_budget(training, component) for component in (names.ENGINE, *((names.GATEWAY,) if shared_store else ()))]


def _budget(training: Training, component: str) -> Object:
    name = names.component(training.name, component)
    spec = {
        "maxUnavailable": 1,
        "selector": {"matchLabels": metadata.selector(training.name, component)},
        # A pod that is not ready serves nobody: it may go at any time.
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return {**metadata.child(training, "policy/v1", "PodDisruptionBudget", name, component), "spec": spec}
