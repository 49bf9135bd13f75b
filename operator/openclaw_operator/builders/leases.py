"""The two Leases, created empty. Their content has writers of its own: the weight sync and the trainer.

Server-side apply under another field manager leaves that content alone, because nothing of it is named here.
"""

from typing import Any

from openclaw_core import names
from openclaw_operator.builders import metadata
from openclaw_operator.training import Training

Object = dict[str, Any]


def leases(training: Training) -> list[Object]:
    wanted = (names.weight_sync_lease(training.name), names.published_lease(training.name))
    return [metadata.child(training, "coordination.k8s.io/v1", "Lease", name) for name in wanted]
