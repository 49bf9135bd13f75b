"""The two Leases. Their content has writers of its own, the weight sync and the trainer, but for the admin's hold.

Server-side apply under another field manager leaves that content alone, because nothing of it is named here; a hold
that is no longer named goes.
"""

from typing import Any

from openclaw_core import names
from openclaw_core.leases import SubmissionHold, render_submission_hold
from openclaw_operator.builders import metadata
from openclaw_operator.training import Training

Object = dict[str, Any]


def leases(training: Training, hold: SubmissionHold | None) -> list[Object]:
    sync, published = (
        metadata.child(training, "coordination.k8s.io/v1", "Lease", name)
        for name in (names.weight_sync_lease(training.name), names.published_lease(training.name))
    )
    if hold is not None:
        sync["metadata"]["annotations"] = {names.ANNOTATION_HOLD: render_submission_hold(hold)}
    return [sync, published]
