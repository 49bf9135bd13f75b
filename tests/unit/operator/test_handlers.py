"""The kopf edge: what it watches, and that kopf is left no reason to write."""

from typing import Any

from openclaw_core import names
from openclaw_operator import handlers, kinds
from openclaw_operator.training import Key


def test_only_event_handlers_exist_so_kopf_adds_no_finalizer() -> None:
    registry = handlers.registry(lambda *_: None, (*kinds.APPLIED, kinds.POD))
    watched = {handler.id for handler in registry._watching._handlers}
    assert watched == {"training", *(kind.plural for kind in (*kinds.APPLIED, kinds.POD))}
    assert list(registry._changing._handlers) == []
    assert list(registry._spawning._handlers) == []
    assert list(registry._indexing._handlers) == []


async def test_events_are_told_with_their_training() -> None:
    told: list[tuple[Key, str, str | None, Any]] = []
    registry = handlers.registry(lambda *event: told.append(event), (*kinds.APPLIED, kinds.POD))
    call: dict[str, Any] = {handler.id: handler.fn for handler in registry._watching._handlers}
    event = {"type": "ADDED", "object": {"metadata": {"name": "p"}}}
    await call["pods"](namespace="lab", labels={names.LABEL_TRAINING: "demo"}, event=event)
    gone = {"type": "DELETED", "object": {"metadata": {"name": "other"}}}
    await call["training"](namespace="lab", name="other", event=gone)
    await call["services"](namespace="lab", labels={}, event=event)
    assert told == [
        (Key("lab", "demo"), "Pod", "ADDED", event["object"]),
        (Key("lab", "other"), names.KIND, "DELETED", gone["object"]),
    ]


def test_children_are_narrowed_by_label_on_the_server() -> None:
    settings = handlers.settings((*kinds.APPLIED, kinds.POD))
    assert settings.posting.enabled is False
    assert settings.peering.standalone is True
    assert settings.watching.server_timeout == 300
    chosen = (
        dict(settings.watching.label_selectors.items()) if hasattr(settings.watching.label_selectors, "items") else {}
    )
    assert set(chosen.values()) <= {names.LABEL_TRAINING}
