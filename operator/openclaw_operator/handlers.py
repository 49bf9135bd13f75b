"""The kopf edge: watch events in, keys out. Nothing else happens here.

Only `on.event` handlers: kopf then needs no finalizer, no annotation and no patch of its own (a test asserts that no
training ever carries one), and no event of an object waits behind its handler.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import kopf

from openclaw_core import names
from openclaw_operator import kinds
from openclaw_operator.training import Key

Enqueue = Callable[[Key], None]
_WATCHED_CHILDREN = (*kinds.APPLIED, kinds.POD)


def registry(enqueue: Enqueue) -> kopf.OperatorRegistry:
    """Handlers for the training and every kind of child."""
    found = kopf.OperatorRegistry()

    async def on_training(*, namespace: str | None, name: str, **_: Any) -> None:
        enqueue(Key(namespace or "", name))

    async def on_child(*, namespace: str | None, labels: Mapping[str, str], **_: Any) -> None:
        training = labels.get(names.LABEL_TRAINING)
        if training:
            enqueue(Key(namespace or "", training))

    kopf.on.event(names.GROUP, names.VERSION, names.PLURAL, registry=found, id="training")(on_training)
    for kind in _WATCHED_CHILDREN:
        group, _, version = kind.api_version.rpartition("/")
        kopf.on.event(group, version, kind.plural, registry=found, id=kind.plural)(on_child)
    kopf.on.login(registry=found)(_login)
    return found


def settings() -> kopf.OperatorSettings:
    """Standalone, no posting, bounded requests, children narrowed by label on the server."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.peering.standalone = True
    chosen.scanning.disabled = True
    chosen.watching.server_timeout = 300
    chosen.watching.client_timeout = 330
    chosen.watching.connect_timeout = 10
    chosen.networking.request_timeout = 30
    chosen.networking.connect_timeout = 10
    chosen.execution.default_backoff = 15
    chosen.process.ultimate_exiting_timeout = 10
    for kind in _WATCHED_CHILDREN:
        group, _, version = kind.api_version.rpartition("/")
        chosen.watching.label_selectors[group, version, kind.plural] = names.LABEL_TRAINING
    return chosen


async def watch(enqueue: Enqueue, namespaces: Iterable[str], spawned: Callable[[], None]) -> None:
    """Run kopf until cancelled or failed. No namespaces = the whole cluster.

    kopf takes the process's signals when it spawns; `spawned` is called right after, to take them back.
    """
    logging.getLogger("kopf").setLevel(logging.WARNING)
    chosen = list(namespaces)
    existing = asyncio.all_tasks()
    operator_tasks = await kopf.spawn_tasks(
        registry=registry(enqueue),
        settings=settings(),
        namespaces=chosen,
        clusterwide=not chosen,
        standalone=True,
    )
    spawned()
    await kopf.run_tasks(operator_tasks, ignored=existing)


def _login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)
