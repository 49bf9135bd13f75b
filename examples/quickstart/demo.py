"""`make demo`: a real cluster, a policy that learns online from its users, a plain verdict.

    bring_up ─▶ first served turn ─▶ examine ─▶ users talk, watch ⇄ users quiet, examine ─▶ accounts
        observation: Lease watch, engines, trainer, users, gateway (read only)

Ends with one JSON line; exit code 0 only when it learned. The cluster stays up, users are left stopped.
"""

import asyncio
import contextlib
import os
import signal
import sys
import traceback
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp

from examples.quickstart import manifests, options, plots, verdict
from examples.quickstart.bring_up import BringUp
from examples.quickstart.commands import Cluster, StepError
from examples.quickstart.console import Clock, console
from examples.quickstart.evaluation import Examiner
from examples.quickstart.forwards import Forward, forwarded
from examples.quickstart.learning import Learning
from examples.quickstart.observation import Observer
from examples.quickstart.pacing import Pace
from examples.quickstart.switch import Switch
from examples.quickstart.verdict import Outcome
from openclaw_core import names
from openclaw_environment.chat import Chat, GaveUpError
from openclaw_environment.journal import Journal
from openclaw_environment.tasks import TASKS

GATEWAY_PORT = 30000


class Demo:
    """One run. `outcome` says how far it got."""

    def __init__(self, wanted: options.Options) -> None:
        self._options, self._clock, self._cluster = wanted, Clock(), Cluster.from_environment()
        key = os.environ.get(wanted.judge_key_env, "") if wanted.judge_key_env else None
        self._bring_up = BringUp(self._cluster, self._clock, wanted, key)
        self._learning: Learning | None = None
        self._observer: Observer | None = None

    async def run(self) -> None:
        """Everything up to the accounts. Raises StepError or GaveUpError when a step fails."""
        await self._bring_up.cluster_and_images()
        await self._bring_up.operator_and_namespace()
        manifest = await self._bring_up.training()
        training = manifest["metadata"]["name"]
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            self._observer = Observer(self._cluster, self._options.namespace, training, http)
            async with _in_background(self._observer.watch_lease()):
                await self._bring_up.serving(training)
                async with self._forward(training, names.GATEWAY, GATEWAY_PORT, names.PORT_GATEWAY_INTERNAL) as gateway:
                    await gateway.ready()
                    await self._with_gateway(training, manifest, gateway, http)

    async def _with_gateway(
        self, training: str, manifest: manifests.Manifest, gateway: Forward, http: aiohttp.ClientSession
    ) -> None:
        assert self._observer is not None
        journal = Journal()
        chat = Chat(http, f"{gateway.url(GATEWAY_PORT)}/v1", journal)
        task = TASKS[manifests.task_name(manifest)]
        examiner = Examiner(chat, task, manifests.served_name(manifest))
        answer = await examiner.ask(task.held_out[0], task.temperature)
        self._clock.say(f"first served turn: {task.held_out[0]} → {answer.strip()!r}", style="bold")
        await self._bring_up.everything(training)
        tokens = await self._observer.tokens()
        async with AsyncExitStack() as stack:
            trainer = await stack.enter_async_context(self._forward(training, names.TRAINER, names.PORT_TRAINER))
            for watcher in (
                self._observer.poll_stats(gateway, tokens[names.SECRET_KEY_GATEWAY]),
                self._observer.poll_engines(tokens[names.SECRET_KEY_AGENT]),
                self._observer.poll_trainer(trainer),
            ):
                await stack.enter_async_context(_in_background(watcher))
            pace = Pace(self._options.minutes, self._options.max_updates)
            self._learning = Learning(self._clock, pace, self._observer.seen, examiner, journal)
            await self._learning.examine_before()
            await self._let_users_talk(training, http)

    async def _let_users_talk(self, training: str, http: aiohttp.ClientSession) -> None:
        assert self._learning is not None and self._observer is not None
        self._clock.say("users start: each asks, reads the answer and reacts")
        await self._bring_up.users(training, 1)
        await self._bring_up.everything(training)
        async with (
            self._forward(training, names.ENVIRONMENT, names.PORT_ENVIRONMENT) as users,
            _in_background(self._observer.poll_users(users)),
        ):
            await users.ready()
            try:
                await self._learning.learn(Switch(http, users))
                await self._learning.settle_accounts()
            finally:
                # Also after Ctrl-C: nobody should go on training a policy that no one looks at.
                with contextlib.suppress(StepError, asyncio.CancelledError):
                    await asyncio.wait_for(self._bring_up.users(training, 0), 15)

    def outcome(self, fault: str | None = None) -> Outcome:
        faults = [fault] if fault else []
        if self._learning is None:
            return Outcome(None, None, None, None, 0, [], 0, None, self._clock.seconds(), faults)
        self._learning.findings.faults += faults
        return self._learning.outcome(self._clock.seconds())

    def tell(self, outcome: Outcome) -> None:
        """Samples, plot, windows, verdict, where to look next."""
        console.print()
        if self._learning is not None and self._observer is not None:
            self._tell_samples()
            self._tell_curve()
            windows = ", ".join(f"{length:.0f}" for length in outcome.windows_ms) or "none"
            console.print(f"Weight syncs, pause in ms: {windows}", markup=False)
        console.print()
        console.print(verdict.in_words(outcome), style="bold", markup=False)
        console.print(_next_steps(self._options.namespace), markup=False)

    def _tell_samples(self) -> None:
        assert self._learning is not None
        before, after = self._learning.findings.before, self._learning.findings.after
        if before is None or after is None:
            return
        console.print("Held-out questions, before → after", style="bold")
        for (question, old), (_, new) in list(zip(before.answers, after.answers, strict=True))[:4]:
            console.print(f"  {question}\n    before: {old.strip()!r}\n    after:  {new.strip()!r}", markup=False)
        console.print()

    def _tell_curve(self) -> None:
        assert self._learning is not None and self._observer is not None
        rates = self._observer.seen.rates()
        console.print("Share of answers users liked, per update", style="bold")
        console.print(plots.as_text(rates), markup=False)
        if rates:
            picture = self._options.out / "reward.png"
            plots.as_png(rates, self._learning.findings.looks, picture)
            console.print(f"Picture: {picture}", markup=False)

    def _forward(self, training: str, component: str, *ports: int) -> contextlib.AbstractAsyncContextManager[Forward]:
        target = f"svc/{names.component(training, component)}"
        return forwarded(self._cluster, self._options.namespace, target, *ports)


@asynccontextmanager
async def _in_background(coroutine: Coroutine[object, object, None]) -> AsyncIterator[None]:
    """Runs beside the block; a failure of it fails the block at its end or cancels it."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(coroutine)
        yield
        task.cancel()


def _next_steps(namespace: str) -> str:
    return (
        "The cluster is still up. Look around:\n"
        '  eval "$(.venv/bin/python -m openclaw_cluster env)"\n'
        f"  kubectl -n {namespace} get openclawtrainings -o wide\n"
        f"  kubectl -n {namespace} describe openclawtraining quickstart\n"
        f"  kubectl -n {namespace} get events --sort-by=.lastTimestamp\n"
        "  make cluster-down   ends it; its data stays"
    )


def _first_failure(group: BaseException) -> BaseException:
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group


async def _main(demo: Demo) -> Outcome:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        await demo.run()
    except Exception as raised:  # outermost: whatever happened, the last line must say that it did not learn
        error = _first_failure(raised)
        if not isinstance(error, StepError | GaveUpError):
            traceback.print_exception(error)
        return demo.outcome(str(error) or type(error).__name__)
    return demo.outcome()


def main() -> int:
    demo = Demo(options.parse())
    try:
        outcome = asyncio.run(_main(demo))
    except (KeyboardInterrupt, asyncio.CancelledError):
        outcome = demo.outcome("it was interrupted")
    demo.tell(outcome)
    sys.stdout.flush()
    sys.stdout.write(outcome.json_line() + "\n")
    return 0 if outcome.learned() else 1


if __name__ == "__main__":
    sys.exit(main())
