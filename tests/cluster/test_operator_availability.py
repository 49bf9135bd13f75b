"""Two operators, a crash, a clean stop, and an API server that goes away. Real API server, pods on paper."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from openclaw_core import names
from tests.cluster.lab import training, until
from tests.cluster.own_operator import OwnOperator, Rig

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@contextmanager
def standby(rig: Rig, name: str = "operator-1") -> Iterator[OwnOperator]:
    """A second contender; the rig's own leads again afterwards."""
    found = OwnOperator(rig.operator.kubeconfig, rig.plane.folder, name)
    found.start()
    try:
        until("the standby answers", lambda: found.get("/readyz")[0] == 200, 30)
        time.sleep(3)
        yield found
    finally:
        found.kill(signal.SIGTERM)
        if not rig.operator.alive():
            rig.operator.start()
        rig.operator.until_leading()


def test_standby_is_ready_without_the_lead(rig: Rig) -> None:
    with standby(rig) as other:
        assert other.get("/readyz")[0] == 200
        assert other.get("/healthz")[0] == 200
        assert not other.leads()
        assert rig.operator.leads()


def test_standby_leads_after_a_crash_and_goes_on(rig: Rig) -> None:
    with standby(rig) as other:
        rig.operator.kill(signal.SIGKILL)
        other.until_leading(90)  # how soon is bench/operator_takeover.py's question
        rig.lab.apply(training("after"))
        rig.lab.until_phase("after", "Running", 150)
        rig.lab.run("delete", names.PLURAL, "after")


def test_standby_leads_after_a_clean_stop_before_the_lease_runs_out(rig: Rig) -> None:
    with standby(rig) as other:
        process = rig.operator.process
        assert process is not None
        process.send_signal(signal.SIGTERM)
        other.until_leading(60)
        assert process.wait(30) == 0
        assert '"Lease not released' not in rig.operator.log.read_text()


def test_api_server_that_is_gone_for_a_minute_ends_nothing_for_good(rig: Rig) -> None:
    """The lead cannot be held without it, so the process ends once, as its kubelet's restart would have it begin."""
    rig.lab.apply(training("lasting"))
    rig.lab.until_phase("lasting", "Running", 150)
    uids = {pod["metadata"]["uid"] for pod in rig.lab.items("pods")}
    before = rig.operator.restarts
    rig.plane.stop("apiserver")
    time.sleep(60)
    rig.plane.start_apiserver()
    rig.operator.until_leading(90)
    rig.lab.patch(names.PLURAL, "lasting", {"spec": {"rewardJudging": {"judgeTimeoutSec": 33}}})
    generation = rig.lab.get(names.PLURAL, "lasting")["metadata"]["generation"]
    until("the watch tells again", lambda: rig.lab.status("lasting").get("observedGeneration") == generation, 60)
    rig.lab.until_phase("lasting", "Running", 150)
    assert rig.operator.restarts - before <= 1
    assert len(uids & {pod["metadata"]["uid"] for pod in rig.lab.items("pods")}) == len(uids) - 1  # the judge rolled
    rig.lab.run("delete", names.PLURAL, "lasting")
