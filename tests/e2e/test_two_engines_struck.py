"""The fault matrix's pass with real engines: two of them, and in a hold every process is killed, then stopped.

Clients ask all the time and try again until they are answered. After each fault nobody waits for an answer any more,
both engines serve the version that is called served, and no hold is left. About six minutes.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from examples.quickstart.commands import StepError
from openclaw_core import names
from tests.e2e import kills
from tests.e2e.running_training import (
    GATEWAY_PORT,
    OPERATOR,
    PAUSE_TIMEOUT_SEC,
    Pod,
    RunningTraining,
    running_training,
    until,
)
from tests.faults.fault_bed import Client

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(2700)]
NAMESPACE = "openclaw-two-engines"
ENGINES = 2
STOPPED_SEC = PAUSE_TIMEOUT_SEC + 2.0
"""Longer than the hold: what is stopped is not back before it ends by itself."""
REPLY_SLACK_SEC = 2.0
SGLANG = "SGLang"


@asynccontextmanager
async def asking(training: RunningTraining) -> AsyncIterator[Client]:
    client = Client(f"{training.gateway.url(GATEWAY_PORT)}/v1/chat/completions")
    task = asyncio.create_task(client.run())
    try:
        yield client
    finally:
        task.cancel()
        await asyncio.wait([task])


Signal = Callable[[signal.Signals], Awaitable[None]]


def signals(training: RunningTraining, actor: str, pod: Pod) -> Signal:
    """How `actor` gets one: SGLang as its scheduler, everybody else as the first process of their container."""

    async def send(number: signal.Signals) -> None:
        if actor == SGLANG:
            await kills.signal_process(training.cluster, training.namespace, pod.name, "sglang::scheduler", number)
        else:
            kills.signal_container(pod.container_id, number)

    return send


async def struck(training: RunningTraining, fault: str, send: Signal) -> None:
    """In the middle of a hold; what was stopped goes on afterwards."""
    await training.in_a_hold(within_sec=90)
    if fault == "kill -9":
        await send(signal.SIGKILL)
        return
    await send(signal.SIGSTOP)
    await asyncio.sleep(STOPPED_SEC)
    await send(signal.SIGCONT)


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


async def test_fleet_of_two_real_engines_survives_every_fault_in_a_hold() -> None:
    async with (
        running_training(
            NAMESPACE, policyServing={"replicas": ENGINES, "pauseTimeoutSec": PAUSE_TIMEOUT_SEC}
        ) as training,
        asking(training) as client,
    ):
        for fault in ("kill -9", "hang"):
            for actor in (OPERATOR, names.TRAINER, names.GATEWAY, SGLANG, names.ENGINE):
                pod = (await training.pods(names.ENGINE if actor == SGLANG else actor))[0]
                accounts, began = await training.stats(), time.monotonic()
                await struck(training, fault, signals(training, actor, pod))
                await training.goes_on(within_sec=300)
                await serve_one_version(training)
                await training.accounts_hold(accounts)
                silence = client.longest_silence(began, time.monotonic())
                print(f"{actor:10} {fault:8} longest silence {silence:.1f} s, lost {client.lost}")  # noqa: T201 - what was seen
                assert client.lost == 0, f"{actor}, {fault}"
                if actor not in (names.GATEWAY, names.ENGINE, SGLANG):
                    assert silence <= PAUSE_TIMEOUT_SEC + REPLY_SLACK_SEC, f"{actor}, {fault}"
                assert training.history.faults() == []
                await training.nothing_trained_twice()
