"""A whole look at a training: from the API server's watch cache where that is as new as what is known."""

from collections.abc import Mapping

from openclaw_core.kube import KubeError, Object
from openclaw_operator import kinds
from openclaw_operator.index import Index
from openclaw_operator.observe import listed
from openclaw_operator.training import Key
from tests.unit.operator.memory_kube import MemoryKube
from tests.unit.operator.trainings import body

KEY = Key("lab", "demo")
SERVICES = "/api/v1/namespaces/lab/services"


class Caching(MemoryKube):
    """An API server whose watch cache has come to `newest`."""

    def __init__(self, newest: int) -> None:
        super().__init__()
        self.newest = newest
        self.asked: dict[str, list[str]] = {}
        self.put(kinds.TRAINING.path("lab", "demo"), body())

    def _answer(self, method: str, url: str, params: Mapping[str, str], body: Object, kind: str) -> Object:
        wanted = params.get("resourceVersion", "")
        self.asked.setdefault(url, []).append(wanted)
        if wanted and int(wanted) > self.newest:
            raise KubeError(504, "Timeout", "Too large resource version")
        return super()._answer(method, url, params, body, kind)


def service(version: int, training: str = "demo") -> Object:
    labels = {"openclawrl.io/training": training}
    return {"metadata": {"name": f"{training}-gateway", "uid": "s", "resourceVersion": str(version), "labels": labels}}


def told() -> Index:
    """A training of ours, its Service, and a younger one of another training."""
    index = Index()
    index.told(KEY, "Service", "ADDED", service(7))
    index.told(Key("lab", "other"), "Service", "ADDED", service(9, "other"))
    return index


async def test_lists_may_be_cached_but_not_older_than_anything_told_of_their_kind() -> None:
    kube = Caching(newest=9)
    assert await listed(kube, KEY, newest=told().newest(KEY)) is not None
    assert kube.asked[SERVICES] == ["9"]
    assert kube.asked["/api/v1/namespaces/lab/pods"] == [""]


async def test_reply_to_our_own_write_counts_as_told() -> None:
    index = told()
    index.told(
        KEY, kinds.TRAINING.kind, "ADDED", body() | {"metadata": {"name": "demo", "uid": "u", "resourceVersion": "5"}}
    )
    seen = index.look(KEY)
    assert seen is not None
    seen.children[("Service", "demo-gateway")] = service(12)
    assert index.newest(KEY)["Service"] == 12
    assert index.newest(Key("lab", "other"))["Service"] == 9


async def test_cache_that_does_not_come_so_far_is_passed_by() -> None:
    kube = Caching(newest=8)
    found = await listed(kube, KEY, newest=told().newest(KEY))
    assert found is not None
    assert kube.asked[SERVICES] == ["9", ""]
