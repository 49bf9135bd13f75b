"""The kopf edge: watch events in, and on to whoever keeps them. Nothing else happens here.

Only `on.event` handlers: kopf then needs no finalizer, no annotation and no patch of its own (a test asserts that no
training ever carries one), and no event of an object waits behind its handler.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import kopf

from openclaw_core import names
from openclaw_operator import kinds
from openclaw_operator.kinds import Kind
from openclaw_operator.training import Key

Told = Callable[[Key, str, str | None, Mapping[str, Any]], None]
"""Told of each event: which training, kind, type (None: of the first list), object."""


def registry(told: Told, children: Iterable[Kind]) -> kopf.OperatorRegistry:
    """Handlers for the training and every kind of child."""
    found = kopf.OperatorRegistry()

    async def on_training(*, namespace: str | None, name: str, event: Mapping[str, Any], **_: Any) -> None:
        told(Key(namespace or "", name), names.KIND, event["type"], event["object"])

    def on_child(kind: str) -> Callable[..., Any]:
        async def on_event(
            *, namespace: str | None, labels: Mapping[str, str], event: Mapping[str, Any], **_: Any
        ) -> None:
            training = labels.get(names.LABEL_TRAINING)
            if training:
                told(Key(namespace or "", training), kind, event["type"], event["object"])

        return on_event

    kopf.on.event(names.GROUP, names.VERSION, names.PLURAL, registry=found, id="training")(on_training)
    for kind in children:
        group, _, version = kind.api_version.rpartition("/")
        kopf.on.event(group, version, kind.plural, registry=found, id=kind.plural)(on_child(kind.kind))
    kopf.on.login(registry=found)(_login)
    return found


class _NoDiffBase(kopf.DiffBaseStorage):
    """No record of an object as last handled: event handlers need none, and to build one copies every object twice."""

    def build(self, *, body: kopf.Body, extra_fields: Any = None) -> Any:
        del body, extra_fields
        return {}

    def fetch(self, *, body: kopf.Body) -> None:
        del body

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: Any) -> None:
        del body, patch, essence


def settings(children: Iterable[Kind]) -> kopf.OperatorSettings:
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
    chosen.persistence.diffbase_storage = _NoDiffBase()
    chosen.queueing.idle_timeout = 1  # of the task each object gets for its events
    for kind in children:
        group, _, version = kind.api_version.rpartition("/")
        chosen.watching.label_selectors[group, version, kind.plural] = names.LABEL_TRAINING
    return chosen


async def watch(
    told: Told,
    namespaces: Iterable[str],
    spawned: Callable[[], None],
    applied: Sequence[Kind] = kinds.APPLIED,
) -> None:
    """Run kopf until cancelled or failed. No namespaces = the whole cluster.

    kopf takes the process's signals when it spawns; `spawned` is called right after, to take them back.
    """
    logging.getLogger("kopf").setLevel(logging.WARNING)
    chosen, children = list(namespaces), (*applied, kinds.POD)
    existing = asyncio.all_tasks()
    operator_tasks = await kopf.spawn_tasks(
        registry=registry(told, children),
        settings=settings(children),
        namespaces=chosen,
        clusterwide=not chosen,
        standalone=True,
    )
    spawned()
    await kopf.run_tasks(operator_tasks, ignored=existing)


def _login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)
