"""One training of the tiny model in a namespace of its own, its users talking all the time, and what can be read of it.

    kubeconfig ──▶ pods, Leases (watched)      port-forward ──▶ gateway /internal/stats, trainer /state, chat
    kubectl exec ──▶ checkpoints on the volume, rows of the experience store

Nothing here kills anything. Every wait is bounded and its failure says what was awaited and what was there instead.
"""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from examples.quickstart import accounts, bring_up, manifests
from examples.quickstart.commands import Cluster
from examples.quickstart.console import Clock
from examples.quickstart.forwards import Forward, forwarded
from examples.quickstart.observation import Observer
from examples.quickstart.options import Options
from openclaw_core import kube, names, wire
from tests.e2e import lease_history, removal
from tests.e2e.consumed_samples import ConsumedSamples
from tests.e2e.lease_history import LeaseHistory

OPERATOR = "operator"
GATEWAY_PORT = 30000
BATCH, HEAD_OFF = 8, 1
UNDER_WAY = (HEAD_OFF + 1) * BATCH
"""Most turns that can be between their admission and a published version at any moment."""
PAUSE_TIMEOUT_SEC = 15
_POLL_SEC = 0.5
_AWAY = (aiohttp.ClientError, TimeoutError, ConnectionError)
_OPERATOR_SELECTOR = f"app.kubernetes.io/name=openclaw-rl,app.kubernetes.io/instance={bring_up.RELEASE}"
_READ_CHECKPOINTS = f"""
import json, pathlib
found = {{}}
for path in pathlib.Path("{names.CHECKPOINT_DIR}").glob("step-*"):
    if path.name.removeprefix("step-").isdigit():
        try:
            state = json.loads((path / "state.json").read_text())
            found[state["step"]] = state["consumed"]
        except FileNotFoundError:
            pass
print(json.dumps(found))
"""
_LOADED = f"""
import json, urllib.request
print(json.load(urllib.request.urlopen("http://127.0.0.1:{names.PORT_SGLANG}/model_info", timeout=5))["weight_version"])
"""
_READ_STORE = f"""
import json, sqlite3
store = sqlite3.connect("file:{names.EXPERIENCE_DIR}/experience.db?mode=ro", uri=True, timeout=10)
print(json.dumps(store.execute(QUERY).fetchall()))
"""


@dataclass(frozen=True)
class Pod:
    name: str
    uid: str
    restarts: int
    ready: bool
    container_id: str


@dataclass
class RunningTraining:
    """Built by `running_training`; `objects` speaks to the API server, `cluster` runs kubectl."""

    cluster: Cluster
    objects: kube.Kube
    http: aiohttp.ClientSession
    namespace: str
    name: str
    history: LeaseHistory
    tokens: dict[str, str]
    gateway: Forward
    trainer: Forward
    consumed: ConsumedSamples = field(default_factory=ConsumedSamples)

    # ------------------------------------------------------------ reading

    async def pods(self, component: str) -> list[Pod]:
        """Pods of a component, or of the operator, that are not on their way out."""
        ours = component != OPERATOR
        namespace = self.namespace if ours else bring_up.OPERATOR_NAMESPACE
        selector = manifests.component_selector(self.name, component) if ours else _OPERATOR_SELECTOR
        listed = await self.objects.list(kube.path("v1", "pods", namespace), label_selector=selector)
        return [_pod(item) for item in listed["items"] if "deletionTimestamp" not in item["metadata"]]

    async def pod(self, component: str) -> Pod:
        found = await self.pods(component)
        assert len(found) == 1, f"{component} has {len(found)} pods: {found}"
        return found[0]

    async def stats(self) -> wire.Stats:
        """The store's accounts, as soon as a gateway answers."""
        headers = {"Authorization": f"Bearer {self.tokens[names.SECRET_KEY_GATEWAY]}"}
        text = await self._read(self.gateway, names.PORT_GATEWAY_INTERNAL, "/internal/stats", headers)
        return wire.Stats.model_validate_json(text)

    async def trainer_state(self) -> wire.TrainerState:
        text = await self._read(self.trainer, names.PORT_TRAINER, "/state", {})
        return wire.TrainerState.model_validate_json(text)

    async def read_checkpoints(self) -> None:
        """Take the newest checkpoints into `consumed`."""
        text = await self.python_in(names.TRAINER, _READ_CHECKPOINTS)
        self.consumed.add({int(step): ids for step, ids in json.loads(text).items()})

    async def trained_ids(self) -> frozenset[int]:
        return frozenset(identity for (identity,) in await self._rows("select id from turns where state = 'trained'"))

    async def in_hand(self) -> frozenset[tuple[int, str]]:
        """Turns being answered by a gateway, or leased by a judge or a trainer: id, and by whom in which lease."""
        rows = await self._rows(
            "select id, state || ' by ' || coalesce(lease, gateway) from turns"
            " where state = 'generating' or lease is not null"
        )
        return frozenset((identity, whose) for identity, whose in rows)

    async def _rows(self, query: str) -> list[list[Any]]:
        """Of the experience store, asked in the gateway's pod."""
        script = _READ_STORE.replace("QUERY", repr(query))
        found: list[list[Any]] = json.loads(await self.python_in(names.GATEWAY, script))
        return found

    async def python_in(self, component: str, script: str) -> str:
        return await self.python_at(await self.pod(component), script)

    async def python_at(self, pod: Pod, script: str) -> str:
        """What `script` prints in this pod."""
        return await self.cluster.run_kubectl(
            "-n", self.namespace, "exec", pod.name, "--", "python3", "-c", script, timeout_sec=60
        )

    async def version_loaded(self, pod: Pod) -> str:
        """What SGLang in this engine's pod says. Raises StepError when it does not answer."""
        return (await self.python_at(pod, _LOADED)).strip()

    async def _read(self, forward: Forward, port: int, path: str, headers: dict[str, str]) -> str:
        answer: list[str] = []

        async def ask() -> str | None:
            try:
                limit = aiohttp.ClientTimeout(total=10)
                async with self.http.get(forward.url(port) + path, headers=headers, timeout=limit) as response:
                    if response.status != 200:
                        return f"HTTP {response.status}"
                    answer.append(await response.text())
                    return None
            except _AWAY as error:
                return f"{type(error).__name__}: {error}"

        await until(f"an answer from {path}", 90, ask)
        return answer[0]

    async def condition(self, kind: str) -> kube.Object:
        """{} where the operator has not reported it yet."""
        path = kube.path(names.API_VERSION, names.PLURAL, self.namespace, self.name)
        conditions = (await self.objects.get(path)).get("status", {}).get("conditions", [])
        return next((one for one in conditions if one["type"] == kind), {})

    async def warnings(self, reason: str) -> list[kube.Object]:
        """Warning events on the training with this reason."""
        listed = await self.objects.list(kube.path("v1", "events", self.namespace))
        wanted = (self.name, "Warning", reason)
        return [
            event
            for event in listed["items"]
            if (event["involvedObject"]["name"], event["type"], event["reason"]) == wanted
        ]

    # ------------------------------------------------------------ acting

    async def apply(self, *objects: manifests.Manifest) -> None:
        await self.cluster.apply(objects, self.namespace)

    async def pin(self, version: str | None) -> None:
        """Set or clear `policyServing.pinnedVersion`."""
        path = kube.path(names.API_VERSION, names.PLURAL, self.namespace, self.name)
        await self.objects.merge_patch(path, {"spec": {"policyServing": {"pinnedVersion": version}}})

    async def ask(self, timeout_sec: float) -> tuple[int, dict[str, str], str]:
        """(status, headers, body) of one short side request. TimeoutError when it is not answered in time."""
        body = {
            "model": "tiny",
            "messages": [{"role": "user", "content": "Tell me about boats."}],
            "max_tokens": 4,
        }
        url = f"{self.gateway.url(GATEWAY_PORT)}/v1/chat/completions"
        limit = aiohttp.ClientTimeout(total=timeout_sec)
        async with self.http.post(url, json=body, headers={"X-Turn-Type": "side"}, timeout=limit) as response:
            return response.status, dict(response.headers), await response.text()

    async def in_a_hold(self, within_sec: float = 60) -> None:
        """Return in the middle of a weight sync: submissions are paused, and engines are exchanging their weights."""

        async def missing() -> str | None:
            return "no hold was seen" if self.history.newest.hold is None else None

        await until("a hold", within_sec, missing, poll_sec=0.003)

    # ------------------------------------------------------------ judging

    async def is_back(self, component: str, before: Pod, within_sec: float) -> None:
        """A new pod, or the same one with a new container, is ready."""

        async def missing() -> str | None:
            now = await self.pods(component)
            new = [pod for pod in now if pod.ready and (pod.uid, pod.restarts) != (before.uid, before.restarts)]
            return None if new and len(new) == len(now) else f"pods now: {now}, before: {before}"

        await until(f"a new {component} that is ready", within_sec, missing)

    async def goes_on(self, within_sec: float = 90) -> None:
        """A new version is served, and more turns were trained than can have been under way when this was called.

        So at least one turn was asked, answered, judged and trained by the parts as they are now.
        """
        trained, announced = (await self.stats()).trained, self.history.announced_number()

        async def missing() -> str | None:
            now, served = (await self.stats()).trained, self.history.served_number()
            if now > trained + UNDER_WAY and served > announced:
                return None
            return f"trained {now} (was {trained}), served v{served}, announced v{self.history.announced_number()}"

        await until(f"more than {UNDER_WAY} newly trained turns and a version after v{announced}", within_sec, missing)

    async def accounts_hold(self, before: wire.Stats) -> None:
        """The identity is true, and no counter went back."""
        now = await self.stats()
        assert accounts.identity_residues(now) == (0, 0), f"the accounting identity is broken: {now}"
        for name in ("served", "recorded", "trained"):
            assert getattr(now, name) >= getattr(before, name), f"{name} went back: {before} → {now}"

    async def nobody_waits_for_the_dead(self, before: frozenset[tuple[int, str]]) -> None:
        """What was `in_hand` when a process was back is so no more: it was finished, given up or given to another."""

        async def missing() -> str | None:
            left = before & await self.in_hand()
            return f"still in hand: {sorted(left)}" if left else None

        await until("the end of what the dead had in hand", 120, missing)

    async def nothing_trained_twice(self) -> None:
        """Checkpoints and store name the same samples, each of them once."""
        await self.read_checkpoints()
        newest_before = self.consumed.newest_step()
        trained = await self.trained_ids()
        await self.read_checkpoints()
        found = self.consumed
        assert not found.trained_twice(), f"ids in two steps: {found.trained_twice()}"
        assert not found.rewritten, f"steps taken again with other samples: {found.rewritten}"
        assert not found.gaps(), f"steps without a checkpoint: {found.gaps()}"
        lost = found.never_settled(trained, newest_before)
        assert not lost, f"trained by a step but not called trained by the store: {lost}"
        invented = found.never_consumed(trained)
        assert not invented, f"called trained by the store, but in no step: {invented}"


async def until(
    what: str, within_sec: float, missing: Callable[[], Awaitable[str | None]], poll_sec: float = _POLL_SEC
) -> None:
    """Ask `missing` until it answers None. AssertionError with `what` and its last answer when time is over."""
    deadline = time.monotonic() + within_sec
    while (words := await missing()) is not None:
        assert time.monotonic() < deadline, f"awaited {what} for {within_sec:.0f} s; {words}"
        await asyncio.sleep(poll_sec)


@asynccontextmanager
async def running_training(
    namespace: str, *, also: Sequence[manifests.Manifest] = (), trains: bool = True, **changes: dict[str, Any]
) -> AsyncIterator[RunningTraining]:
    """Operator, base model, training and users, until its first version is served; everything goes afterwards.

    `changes`: fields of the spec's sections, by section; None takes one out. `trains` False: no version is waited for.
    `also`: objects that come with the training.
    """
    cluster = Cluster.from_environment()
    options = Options("tiny", "normal", None, 0, 0, namespace, None, None, None, build=False, out=Path())
    steps = bring_up.BringUp(cluster, Clock(), options, secrets.token_urlsafe(24))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(removed_afterwards(cluster, namespace))
        await steps.cluster_and_images()
        await steps.operator_and_namespace()
        manifest = _training(changes)
        name, history = str(manifest["metadata"]["name"]), LeaseHistory()
        await cluster.apply([*also, manifest], namespace)
        client = kube.Kube.from_kubeconfig(cluster.parsed_kubeconfig(), cluster.context)
        objects = await stack.enter_async_context(client)
        stack.push_async_callback(
            _end, asyncio.create_task(lease_history.watch(objects, namespace, name, history), name="lease watch")
        )
        await steps.serving(name)
        await steps.everything(name)
        http = await stack.enter_async_context(aiohttp.ClientSession())
        gateway, trainer = [
            await stack.enter_async_context(forwarded(cluster, namespace, f"svc/{name}-{component}", *ports))
            for component, ports in (
                (names.GATEWAY, (GATEWAY_PORT, names.PORT_GATEWAY_INTERNAL)),
                (names.TRAINER, (names.PORT_TRAINER,)),
            )
        ]
        await gateway.ready()
        await trainer.ready()
        tokens = await Observer(cluster, namespace, name, http).tokens()
        found = RunningTraining(cluster, objects, http, namespace, name, history, tokens, gateway, trainer)
        if trains:
            await found.goes_on(within_sec=180)
        yield found


def _training(changes: Mapping[str, dict[str, Any]]) -> manifests.Manifest:
    """The quickstart's tiny training with small batches, a short pause, a step for each batch, all checkpointed."""
    manifest = manifests.training("tiny", learning_rate=1e-5)
    spec: dict[str, Any] = manifest["spec"]
    spec["policyServing"]["pauseTimeoutSec"] = PAUSE_TIMEOUT_SEC
    spec["policyTraining"] |= {
        "rolloutBatchSize": BATCH,
        "minBatch": BATCH,
        "maxHeadOffPolicyness": HEAD_OFF,
        # Against a running mean a batch of equal scores is acked without a step; here every batch must make one.
        "advantage": "none",
        "checkpoint": {"everySteps": 1, "keep": 100},
    }
    for section, fields in changes.items():
        spec[section] = {key: value for key, value in (spec.get(section, {}) | fields).items() if value is not None}
    return manifest


def _pod(item: kube.Object) -> Pod:
    status = item.get("status", {})
    container: kube.Object = next(iter(status.get("containerStatuses", [])), {})
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", []))
    return Pod(
        name=item["metadata"]["name"],
        uid=item["metadata"]["uid"],
        restarts=int(container.get("restartCount", 0)),
        ready=ready,
        container_id=str(container.get("containerID", "")).rpartition("/")[2],
    )


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@asynccontextmanager
async def removed_afterwards(cluster: Cluster, namespace: str) -> AsyncIterator[None]:
    """A training left running would take the next test's memory."""
    try:
        yield
    finally:
        await removal.remove(cluster, namespace)
