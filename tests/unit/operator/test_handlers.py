"""The kopf edge: what it watches, and that kopf is left no reason to write."""

from typing import Any

import kopf

from openclaw_core import names
from openclaw_operator import handlers, kinds
from openclaw_operator.training import Key


def test_only_event_handlers_exist_so_kopf_adds_no_finalizer() -> None:
    registry = handlers.registry(lambda *_: None, lambda *_: None, (*kinds.APPLIED, kinds.POD))
    watched = {handler.id for handler in registry._watching._handlers}
    assert watched == {"training", *(kind.plural for kind in (*kinds.APPLIED, kinds.POD))}
    assert list(registry._changing._handlers) == []
    assert list(registry._spawning._handlers) == []
    assert list(registry._indexing._handlers) == []


async def test_event_of_a_child_enqueues_its_training() -> None:
    seen: list[tuple[Key, str]] = []
    heard: list[tuple[Key, str, bool]] = []
    registry = handlers.registry(
        lambda *told: seen.append(told), lambda *told: heard.append(told), (*kinds.APPLIED, kinds.POD)
    )
    call: dict[str, Any] = {handler.id: handler.fn for handler in registry._watching._handlers}
    pods = kopf.Resource("", "v1", "pods")
    await call["pods"](namespace="lab", labels={names.LABEL_TRAINING: "demo"}, resource=pods)
    await call["training"](namespace="lab", name="other", type="DELETED", meta={"resourceVersion": "7"})
    await call["services"](namespace="lab", labels={}, resource=pods)
    assert seen == [(Key("lab", "demo"), "pods"), (Key("lab", "other"), names.PLURAL)]
    assert heard == [(Key("lab", "other"), "7", True)]


def test_children_are_narrowed_by_label_on_the_server() -> None:
    settings = handlers.settings((*kinds.APPLIED, kinds.POD))
    assert settings.posting.enabled is False
    assert settings.peering.standalone is True
    assert settings.watching.server_timeout == 300
    chosen = (
        dict(settings.watching.label_selectors.items()) if hasattr(settings.watching.label_selectors, "items") else {}
    )
    assert set(chosen.values()) <= {names.LABEL_TRAINING}
