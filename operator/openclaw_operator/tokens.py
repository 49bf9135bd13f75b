"""The generated Secret of a training: made once, then only read."""

import base64
import secrets as randomness

from openclaw_core import names
from openclaw_core.kube import ConflictError, Kube, NotFoundError, Object
from openclaw_operator import kinds
from openclaw_operator.builders.secret import internal_secret
from openclaw_operator.training import Training
from openclaw_operator.weightsync.edge import Tokens


async def ensure(kube: Kube, training: Training) -> Tokens:
    """Tokens of `<name>-internal`, created if absent. An existing Secret is never written."""
    path = kinds.SECRET.path(training.namespace, names.internal_secret(training.name))
    try:
        found = await kube.get(path)
    except NotFoundError:
        body = internal_secret(training, lambda: randomness.token_urlsafe(32))
        try:
            found = await kube.create(kinds.SECRET.collection(training.namespace), body)
        except ConflictError:
            found = await kube.get(path)
    return _read(found)


def _read(secret: Object) -> Tokens:
    data = secret.get("data") or {}

    def value(key: str) -> str:
        return base64.b64decode(data.get(key, "")).decode()

    return Tokens(gateway=value(names.SECRET_KEY_GATEWAY), agent=value(names.SECRET_KEY_AGENT))
