"""Secret `<name>-internal`: tokens of the gateway's internal port and of the sync agents.

Created once and never written again, so a reconcile cannot rotate it under running pods.
"""

from collections.abc import Callable
from typing import Any

from openclaw_core import names
from openclaw_operator.builders import metadata
from openclaw_operator.training import Training

Object = dict[str, Any]


def internal_secret(training: Training, draw: Callable[[], str]) -> Object:
    """`draw` gives one fresh token."""
    manifest = metadata.child(training, "v1", "Secret", names.internal_secret(training.name))
    keys = (names.SECRET_KEY_GATEWAY, names.SECRET_KEY_AGENT)
    return {**manifest, "type": "Opaque", "immutable": True, "stringData": {key: draw() for key in keys}}
