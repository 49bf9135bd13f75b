"""The fault matrix's pass with real engines: two of them, and in a hold everything is killed, stopped and cut off.

A client asks all the time and tries again until it is answered. After each fault nobody waits for an answer any more,
both engines serve the version that is called served, and no hold is left. About ten minutes.

Not struck: SGLang by a partition, for it shares its pod's veth with the agent, whose partition that is; the API server
by a hang, which would take the node's own controllers with it (the matrix does that before a control plane of its own).
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from examples.quickstart.commands import StepError
from openclaw_cluster import addresses
from openclaw_cluster import layout as layouts
from openclaw_core import kube, names
from tests.e2e import kills, partitions
from tests.e2e.running_training import (
    GATEWAY_PORT,
    OPERATOR,
    PAUSE_TIMEOUT_SEC,
    Pod,
    RunningTraining,
    running_training,
    until,
)
from tests.faults.client import Client

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.timeout(2700),
    pytest.mark.skipif("KUBECONTEXT" in os.environ, reason="needs the node's processes"),
    pytest.mark.skipif(os.geteuid() != 0, reason="signals and nft on the node need root"),
]
NAMESPACE = "openclaw-two-engines"
ENGINES = 2
STRUCK_SEC = PAUSE_TIMEOUT_SEC + 2.0
"""Longer than the hold: what is stopped or cut off is not back before the hold ends by itself."""
BOUND_SEC = PAUSE_TIMEOUT_SEC + 2.0
"""Longest time without an answer."""
SGLANG, API_SERVER = "SGLang", "API server"
ASK_API = (OPERATOR, names.TRAINER, names.GATEWAY)
PROCESSES = (OPERATOR, names.TRAINER, names.GATEWAY, SGLANG, names.ENGINE)
FAULTS = (
    *(("kill -9", actor) for actor in (*PROCESSES, API_SERVER)),
    *(("hang", actor) for actor in PROCESSES),
    *(("partition", actor) for actor in (OPERATOR, names.TRAINER, names.GATEWAY, names.ENGINE, API_SERVER)),
)


@asynccontextmanager
async def asking(training: RunningTraining) -> AsyncIterator[Client]:
    """At the gateway's own address: a port-forward ends with the API server. Opted out, it takes no user's place."""
    gateway = await training.pod(names.GATEWAY)
    words = ("-n", training.namespace, "get", "pod", gateway.name, "-o", "jsonpath={.status.podIP}")
    address = (await training.cluster.run_kubectl(*words)).strip()
    client = Client(f"http://{address}:{GATEWAY_PORT}/v1/chat/completions", recorded=False)
    task = asyncio.create_task(client.run())
    try:
        yield client
    finally:
        task.cancel()
        await asyncio.wait([task])


# ---------------------------------------------------------------- faults


async def struck(training: RunningTraining, fault: str, actor: str) -> None:
    """In the middle of a hold; what was stopped or cut off goes on afterwards."""
    pods = await struck_pods(training, actor)
    await training.in_a_hold(within_sec=90)
    if fault == "partition":
        match = f"ip daddr {addresses.API_SERVICE_IP}" if actor == API_SERVER else ""
        with partitions.cut_off([pod.container_id for pod in pods], match):
            await asyncio.sleep(STRUCK_SEC)
    elif fault == "hang":
        await send(training, actor, pods[0], signal.SIGSTOP)
        await asyncio.sleep(STRUCK_SEC)
        await send(training, actor, pods[0], signal.SIGCONT)
    else:
        await send(training, actor, pods[0], signal.SIGKILL)
    if actor == API_SERVER:
        await api_answers(training)


async def struck_pods(training: RunningTraining, actor: str) -> list[Pod]:
    """The actor's own; of the API server, those of everybody who asks it."""
    if actor == API_SERVER:
        return [pod for component in ASK_API for pod in await training.pods(component)]
    return (await training.pods(names.ENGINE if actor == SGLANG else actor))[:1]


async def send(training: RunningTraining, actor: str, pod: Pod, number: signal.Signals) -> None:
    """To SGLang's scheduler, to the node's API server, else to the first process of the pod's container."""
    if actor == SGLANG:
        await kills.signal_process(training.cluster, training.namespace, pod.name, "sglang::scheduler", number)
    elif actor == API_SERVER:
        os.kill(api_server(), number)
    else:
        kills.signal_container(pod.container_id, number)


def api_server() -> int:
    """Its process, as the cluster's supervisor noted it."""
    return int((layouts.from_environment().run / "kube-apiserver.pid").read_text())


async def api_answers(training: RunningTraining) -> None:
    """Again: the cluster's supervisor starts one that was killed."""

    async def missing() -> str | None:
        with contextlib.suppress(kube.KubeError, aiohttp.ClientError, TimeoutError):
            await training.objects.list(kube.path("v1", "pods", training.namespace))
            return None
        return "it does not answer"

    await asyncio.sleep(1.0)  # what answers before is the one that dies
    await until("the API server", 90, missing)


# ---------------------------------------------------------------- what is asked


async def serve_one_version(training: RunningTraining) -> None:
    """Both engines have the version that is called served, and no hold is on."""

    async def missing() -> str | None:
        pods, state = await training.pods(names.ENGINE), training.history.newest
        if len(pods) != ENGINES or not all(pod.ready for pod in pods):
            return f"engines: {pods}"
        try:
            loaded = [await training.version_loaded(pod) for pod in pods]
        except StepError as error:
            return f"an engine that is Ready does not say what it loaded: {error}"  # the kubelet has yet to see it end
        same = set(loaded) == {state.serving_version} and training.history.newest == state and state.hold is None
        return None if same else f"loaded {loaded}, {state}"

    await until("both engines to serve the served version", 300, missing, poll_sec=0.2)


def was_answered_in_time(client: Client, began: float, fault: str, actor: str) -> bool:
    """Of an engine that is stopped the 503 alone has a bound: the request that it holds is the client's to give up.

    While the only gateway is struck nobody answers at all.
    """
    silences = client.silences(began, time.monotonic())
    if actor == names.GATEWAY:
        return True
    if fault == "hang" and actor in (names.ENGINE, SGLANG):
        return all(silence.refused <= BOUND_SEC for silence in silences)
    return all(silence.whole <= BOUND_SEC for silence in silences)


# Each kind in a training of its own: holds that nobody ended are of the tenth of ten minutes that a training may pause.
@pytest.mark.parametrize("kind", ["kill -9", "hang", "partition"])
async def test_fleet_of_two_real_engines_survives_every_fault_in_a_hold(kind: str) -> None:
    async with (
        running_training(
            NAMESPACE, policyServing={"replicas": ENGINES, "pauseTimeoutSec": PAUSE_TIMEOUT_SEC}
        ) as training,
        asking(training) as client,
    ):
        for fault, actor in (one for one in FAULTS if one[0] == kind):
            accounts, began = await training.stats(), time.monotonic()
            await struck(training, fault, actor)
            await training.goes_on(within_sec=300)
            await serve_one_version(training)
            await training.accounts_hold(accounts)
            silence = client.longest_silence(began, time.monotonic())
            print(f"{actor:10} {fault:9} longest silence {silence:.1f} s, lost {client.lost}")  # noqa: T201 - what was seen
            assert client.lost == 0, f"{actor}, {fault}"
            assert was_answered_in_time(client, began, fault, actor), f"{actor}, {fault}: {silence:.1f} s"
            assert training.history.faults() == []
            await training.nothing_trained_twice()
