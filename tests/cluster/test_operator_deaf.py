"""Watches that go silent without being closed. Real API server behind a proxy that stops passing on what they say."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from openclaw_cluster import bare
from openclaw_core import names
from tests.cluster.deaf_proxy import DeafProxy, Hearing
from tests.cluster.lab import Lab, kubectl, training, until
from tests.cluster.own_operator import OwnOperator

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

OFTEN = "from openclaw_operator import watchdog; watchdog.LOOK_EVERY_SEC = 15.0"


@dataclass
class Deaf:
    proxy: DeafProxy
    operator: OwnOperator
    lab: Lab

    def observed(self) -> bool:
        body = self.lab.get(names.PLURAL, "demo")
        found: bool = (body.get("status") or {}).get("observedGeneration") == body["metadata"]["generation"]
        return found

    def edit(self, timeout: int) -> None:
        self.lab.patch(names.PLURAL, "demo", {"spec": {"rewardJudging": {"judgeTimeoutSec": timeout}}})


@pytest.fixture
def deaf(plane: bare.Bare, request: pytest.FixtureRequest) -> Iterator[Deaf]:
    if "ops" not in kubectl("get", "namespaces", "-o", "name", kubeconfig=plane.kubeconfig):
        kubectl("create", "namespace", "ops", kubeconfig=plane.kubeconfig)
    with DeafProxy(plane) as proxy, Lab.fresh(plane.kubeconfig) as lab:
        config = plane.write_kubeconfig("deaf.kubeconfig", plane.token, proxy.server)
        operator = OwnOperator(config, plane.folder, "deaf", first=getattr(request, "param", ""))
        operator.start()
        try:
            operator.until_leading()
            lab.apply(training("demo"))
            found = Deaf(proxy, operator, lab)
            until("the training is seen", found.observed, 60)
            yield found
        finally:
            operator.kill()


def test_watch_whose_connection_went_silent_is_opened_again(deaf: Deaf) -> None:
    deaf.proxy.hear(Hearing.OPEN_ONES_DEAF)
    deaf.edit(33)
    until("the edit is seen", deaf.observed, 180)


@pytest.mark.parametrize("deaf", [OFTEN], ids=["looks_often"], indirect=True)
def test_process_whose_watches_never_tell_anything_ends(deaf: Deaf) -> None:
    deaf.proxy.hear(Hearing.ALL_DEAF)
    deaf.edit(34)
    until("the process ends", lambda: not deaf.operator.alive(), 300)
    assert "SilentWatchError: the watch of trainings is silent" in deaf.operator.log.read_text()
