"""Every part of a running training is killed while its users talk: the loop goes on, and nothing is lost or doubled.

The rows run in order and each begins with a loop that goes on. About seven minutes.
"""

import os
import secrets
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from examples.quickstart import bring_up, manifests
from openclaw_core import kube, names, wire
from tests.e2e import kills
from tests.e2e.lease_history import SeenHold
from tests.e2e.running_training import OPERATOR, PAUSE_TIMEOUT_SEC, Pod, RunningTraining, until

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

SLACK_SEC = 3.0
"""How late our own look may see the end of a pause on a machine with two busy cores."""


# ------------------------------------------------------------ one part at a time


async def delete_pod(training: RunningTraining, component: str, pod: Pod) -> None:
    namespace = bring_up.OPERATOR_NAMESPACE if component == OPERATOR else training.namespace
    await training.objects.delete(kube.path("v1", "pods", namespace, pod.name), uid=pod.uid)


async def kill_container(_: RunningTraining, component: str, pod: Pod) -> None:
    if os.environ.get("KUBECONTEXT"):
        pytest.skip(f"kill -9 of {component}'s first process needs the node's processes")
    kills.kill_container(pod.container_id)


async def kill_container_in_a_hold(training: RunningTraining, component: str, pod: Pod) -> None:
    await training.in_a_hold()
    await kill_container(training, component, pod)


async def kill_container_while_publishing(training: RunningTraining, component: str, pod: Pod) -> None:
    """After the checkpoint that consumed a batch and before the store is told: the batch must not be trained again."""

    async def missing() -> str | None:
        phase = (await training.trainer_state()).phase
        return None if phase == "publishing" else f"the trainer is {phase}"

    await until("the trainer to publish", 60, missing, poll_sec=0.01)
    await kill_container(training, component, pod)


async def kill_container_while_answering(training: RunningTraining, component: str, pod: Pod) -> None:
    """SGLang stands still meanwhile, so that the gateway surely dies with turns in hand."""

    async def missing() -> str | None:
        in_hand = sorted(await training.in_hand())
        return None if any(whose.startswith("generating") for _, whose in in_hand) else str(in_hand)

    async with sglang_stands_still(training, await training.pod(names.ENGINE)):
        await until("a turn that is being answered", 30, missing)
        await kill_container(training, component, pod)


async def kill_sglang(training: RunningTraining, _: str, pod: Pod) -> None:
    await kills.signal_process(training.cluster, training.namespace, pod.name, "openclaw_engine.launch", signal.SIGKILL)


@dataclass(frozen=True)
class Fault:
    component: str
    strike: Callable[[RunningTraining, str, Pod], Awaitable[None]]
    back_within_sec: float

    def __str__(self) -> str:
        return f"{self.component}-{self.strike.__name__}"


FAULTS = (
    Fault(names.JUDGE, kill_container, 60),
    Fault(names.JUDGE, delete_pod, 60),
    Fault(names.ENVIRONMENT, kill_container, 60),
    Fault(names.ENVIRONMENT, delete_pod, 90),
    Fault(names.GATEWAY, kill_container_in_a_hold, 60),
    Fault(names.GATEWAY, kill_container_while_answering, 60),
    Fault(names.GATEWAY, delete_pod, 120),
    Fault(OPERATOR, kill_container_in_a_hold, 60),
    Fault(OPERATOR, delete_pod, 60),
    Fault(names.TRAINER, kill_container_while_publishing, 180),
    Fault(names.TRAINER, delete_pod, 180),
    Fault(names.ENGINE, kill_sglang, 300),
    Fault(names.ENGINE, delete_pod, 300),
    Fault(names.ENGINE, kill_container_in_a_hold, 300),
)


@pytest.mark.parametrize("fault", FAULTS, ids=str)
async def test_loop_goes_on_after(training: RunningTraining, fault: Fault) -> None:
    pod, accounts, trainer = await training.pod(fault.component), await training.stats(), await training.trainer_state()
    await fault.strike(training, fault.component, pod)
    await training.is_back(fault.component, pod, fault.back_within_sec)
    in_hand = await training.in_hand()
    await training.goes_on()
    await training.accounts_hold(accounts)
    await training.nobody_waits_for_the_dead(in_hand)
    await training.nothing_trained_twice()
    assert training.history.faults() == []
    await check_trainer(training, trainer, restarted=fault.component == names.TRAINER)


async def check_trainer(training: RunningTraining, before: wire.TrainerState, *, restarted: bool) -> None:
    """A restarted trainer goes on from its checkpoint in an epoch of its own; any other restart leaves it alone."""
    now = await training.trainer_state()
    assert now.step > before.step, f"the trainer fell back: step {before.step} → {now.step}"
    assert now.trainer_epoch == before.trainer_epoch + restarted, f"trainer epoch {before} → {now}"
    if restarted:
        first = training.history.first_announced_by(now.trainer_epoch)
        known = int(before.version.split("-")[0])
        assert first is not None and first.number > known, f"v{known}, then the new trainer announced {first}"


# ------------------------------------------------------------ the operator dies in a hold


async def test_hold_without_its_operator_ends_at_expiry_and_leaves_sglang_running(training: RunningTraining) -> None:
    engine, accounts = await training.pod(names.ENGINE), await training.stats()
    await a_newer_version_waits(training)
    async with no_operator(training) as stop_operator:
        async with sglang_stands_still(training, engine):
            hold = await a_hold_begins(training)
            await until("a 503 with Retry-After during the hold", 5, lambda: not_refused(training))
            await stop_operator()
            ended_at = await submissions_pass(training, hold.seen_at + PAUSE_TIMEOUT_SEC + SLACK_SEC)
            assert ended_at >= hold.seen_at + PAUSE_TIMEOUT_SEC - SLACK_SEC, "somebody ended the hold before its expiry"
        await until("an answer of SGLang, released by its agent alone", 30, lambda: unanswered(training))
        assert not await training.pods(OPERATOR), "an operator is back too early for this test to mean anything"
    same = await training.pod(names.ENGINE)
    assert (same.uid, same.restarts) == (engine.uid, engine.restarts), "the engine had to be restarted"
    await training.goes_on(within_sec=120)
    assert training.history.newest.epoch > hold.hold.epoch, "the next operator did not shut the dead hold's epoch out"
    await training.accounts_hold(accounts)
    await training.nothing_trained_twice()
    assert training.history.faults() == []


async def a_newer_version_waits(training: RunningTraining) -> None:
    """Pin what is served until the trainer has announced something newer, so that clearing the pin needs a sync."""
    await training.pin(training.history.newest.serving_version)

    async def missing() -> str | None:
        waiting = training.history.announced_number() > training.history.served_number()
        return None if waiting and training.history.newest.hold is None else str(training.history.newest)

    await until("a version newer than the pinned one", 60, missing)


async def a_hold_begins(training: RunningTraining) -> SeenHold:
    """Clear the pin; the hold that follows."""
    known = len(training.history.holds)
    await training.pin(None)

    async def missing() -> str | None:
        return None if len(training.history.holds) > known else str(training.history.newest)

    await until("a hold", 30, missing)
    return training.history.holds[known]


@asynccontextmanager
async def sglang_stands_still(training: RunningTraining, engine: Pod) -> AsyncIterator[None]:
    """SGLang's scheduler is stopped: it answers neither pause nor update nor continue, and goes on afterwards."""

    async def tell(number: signal.Signals) -> None:
        await kills.signal_process(training.cluster, training.namespace, engine.name, "sglang::scheduler", number)

    await tell(signal.SIGSTOP)
    try:
        yield
    finally:
        await tell(signal.SIGCONT)


@asynccontextmanager
async def no_operator(training: RunningTraining) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Yields what deletes the operator's pod without a successor; the operator is back at the end."""
    namespace = bring_up.OPERATOR_NAMESPACE
    path = kube.path("apps/v1", "deployments", namespace, bring_up.RELEASE)

    async def stop() -> None:
        await training.objects.merge_patch(path, {"spec": {"replicas": 0}})

        async def missing() -> str | None:
            left = await training.pods(OPERATOR)
            return None if not left else f"still there: {left}"

        await until("the operator's end", PAUSE_TIMEOUT_SEC / 2, missing)

    try:
        yield stop
    finally:
        await training.objects.merge_patch(path, {"spec": {"replicas": 1}})


async def submissions_pass(training: RunningTraining, deadline: float) -> float:
    """Ask until no 503 `paused` comes back; when that was. A stopped SGLang lets what passes wait: that counts."""
    while True:
        asked_at = time.monotonic()
        assert asked_at < deadline, f"the gateway still refuses {asked_at - deadline + SLACK_SEC:.1f} s after expiry"
        try:
            status, _, body = await training.ask(1.0)
        except TimeoutError:
            return asked_at
        if status != 503 or "paused" not in body:
            return asked_at


async def not_refused(training: RunningTraining) -> str | None:
    try:
        status, headers, body = await training.ask(1.0)
    except TimeoutError:
        return "admitted, and waits for SGLang"
    refused = status == 503 and "paused" in body and int(headers.get("Retry-After", 0)) >= 1
    return None if refused else f"{status} {headers} {body[:200]}"


async def unanswered(training: RunningTraining) -> str | None:
    try:
        status, _, body = await training.ask(10)
    except TimeoutError:
        return "no answer in 10 s: SGLang is paused"
    return None if status == 200 else f"{status} {body[:200]}"


# ------------------------------------------------------------ a rotated key


async def test_rotated_judge_key_rolls_the_judge_and_nobody_else(training: RunningTraining) -> None:
    components = (*names.COMPONENTS, OPERATOR)
    before = {component: await training.pod(component) for component in components}
    accounts = await training.stats()
    await training.apply(manifests.judge_key(secrets.token_urlsafe(24)))
    await training.cluster.run_kubectl("-n", training.namespace, "rollout", "restart", "deployment/judge-endpoint")
    await training.is_back(names.JUDGE, before[names.JUDGE], 90)
    await training.goes_on()  # the endpoint takes only the new key, so the judge has it
    after = {component: await training.pod(component) for component in components}
    moved = [name for name in components if _incarnation(after[name]) != _incarnation(before[name])]
    assert moved == [names.JUDGE]
    await training.accounts_hold(accounts)


def _incarnation(pod: Pod) -> tuple[str, int]:
    return pod.uid, pod.restarts
