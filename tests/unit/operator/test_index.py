"""What the index makes of events, their order, and of its doubts."""

from typing import Any

from openclaw_core import names
from openclaw_operator.index import Index
from openclaw_operator.observe import Listed
from openclaw_operator.training import Key
from tests.unit.operator import trainings

KEY = Key("lab", "demo")
Object = dict[str, Any]


def training(version: int, uid: str = "t") -> Object:
    body = trainings.body()
    return body | {"metadata": body["metadata"] | {"uid": uid, "resourceVersion": str(version)}}


def service(version: int, uid: str = "s", port: int = 80) -> Object:
    metadata = {"name": "demo-gateway", "namespace": "lab", "uid": uid, "resourceVersion": str(version)}
    return {"kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": port}]}}


def test_training_made_while_watching_needs_no_list() -> None:
    index = Index()
    assert index.told(KEY, names.KIND, "ADDED", training(5))
    seen = index.look(KEY)
    assert seen is not None
    assert (seen.children, seen.pods) == ({}, ())


def test_training_that_was_there_before_is_listed_first() -> None:
    index = Index()
    index.told(KEY, names.KIND, None, training(5))
    assert index.look(KEY) is None
    seen = index.listed(KEY, Listed(training(5), {"Service": [service(4)]}), index.news(KEY))
    assert set(seen.children) == {("Service", "demo-gateway")}
    assert index.look(KEY) == seen


def test_event_during_a_list_leaves_doubt() -> None:
    index = Index()
    index.told(KEY, names.KIND, None, training(5))
    began = index.news(KEY)
    index.told(KEY, "Service", "ADDED", service(7))
    index.listed(KEY, Listed(training(5), {"Service": []}), began)
    assert index.look(KEY) is None


def test_older_events_and_echoes_tell_nothing() -> None:
    index = Index()
    index.told(KEY, names.KIND, "ADDED", training(5))
    assert index.told(KEY, "Service", "ADDED", service(7))
    assert not index.told(KEY, "Service", "MODIFIED", service(7))
    assert not index.told(KEY, "Service", "MODIFIED", service(6, port=81))
    assert index.told(KEY, "Service", "MODIFIED", service(10, port=81))


def test_deletion_of_a_predecessor_leaves_the_successor() -> None:
    index = Index()
    index.told(KEY, names.KIND, "ADDED", training(5))
    index.told(KEY, "Service", "ADDED", service(9, uid="new"))
    assert not index.told(KEY, "Service", "DELETED", service(10, uid="old"))
    assert index.told(KEY, "Service", "DELETED", service(11, uid="new"))
    seen = index.look(KEY)
    assert seen is not None
    assert seen.children == {}


def test_new_training_of_the_same_name_is_looked_at_from_nothing_but_leftovers() -> None:
    index = Index()
    index.told(KEY, names.KIND, None, training(5))
    index.told(KEY, "Service", None, service(4))
    index.told(KEY, names.KIND, "DELETED", training(8))
    assert index.look(KEY) is None
    index.told(KEY, names.KIND, "ADDED", training(9, uid="next"))
    seen = index.look(KEY)
    assert seen is not None
    assert set(seen.children) == {("Service", "demo-gateway")}


def test_nothing_is_kept_of_a_training_that_is_gone() -> None:
    index = Index()
    index.told(KEY, names.KIND, "ADDED", training(5))
    index.told(KEY, "Service", "ADDED", service(6))
    index.told(KEY, names.KIND, "DELETED", training(7))
    index.told(KEY, "Service", "DELETED", service(8))
    assert index._known == {}


def test_doubt_is_over_with_the_next_list() -> None:
    index = Index()
    index.told(KEY, names.KIND, "ADDED", training(5))
    index.doubt(KEY)
    assert index.look(KEY) is None
    index.listed(KEY, Listed(training(5), {}), index.news(KEY))
    assert index.look(KEY) is not None
