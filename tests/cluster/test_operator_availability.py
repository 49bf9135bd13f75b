"""Two operators, a crash, a clean stop, and an API server that goes away. Real API server, pods on paper."""

import signal
import socket
import threading
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


class Proxy(threading.Thread):
    """TCP in front of the API server. `freeze`: connections stay open and carry nothing; new ones work."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._target, self._server = port, socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._frozen: set[int] = set()
        self._open: set[int] = set()

    def freeze(self) -> None:
        self._frozen |= self._open

    def run(self) -> None:
        for number in range(1_000_000):
            client = self._server.accept()[0]
            upstream = socket.create_connection(("127.0.0.1", self._target))
            self._open.add(number)
            for pair in ((client, upstream), (upstream, client)):
                threading.Thread(target=self._carry, args=(number, *pair), daemon=True).start()

    def _carry(self, number: int, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                if number not in self._frozen:
                    sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return


@pytest.mark.slow
def test_watch_that_goes_silent_is_noticed(rig: Rig) -> None:
    """A middlebox that forgets a connection without a word: the operator goes on with new ones, or starts again."""
    proxy = Proxy(rig.plane.port)
    proxy.start()
    token = rig.operator.kubeconfig.read_text().split("token: ")[1].split()[0]
    account = rig.plane.write_kubeconfig("proxied", token, f"https://127.0.0.1:{proxy.port}")
    rig.operator.kill(signal.SIGTERM)
    rig.operator.kubeconfig, before = account, rig.operator.kubeconfig
    rig.operator.start()
    try:
        rig.operator.until_leading()
        rig.lab.apply(training("quiet"))
        rig.lab.until_phase("quiet", "Running", 150)
        proxy.freeze()
        rig.lab.patch(names.PLURAL, "quiet", {"spec": {"rewardJudging": {"judgeTimeoutSec": 33}}})
        generation = rig.lab.get(names.PLURAL, "quiet")["metadata"]["generation"]

        def noticed() -> bool:
            return not rig.operator.alive() or rig.lab.status("quiet").get("observedGeneration") == generation

        until("the silence is noticed", noticed, 200, every=1.0)
    finally:
        rig.operator.kubeconfig = before
        rig.operator.kill()
        rig.operator.start()
        rig.operator.until_leading()
        rig.lab.run("delete", names.PLURAL, "quiet")
