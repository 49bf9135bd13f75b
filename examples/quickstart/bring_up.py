"""From nothing to the first served turn: cluster, images, operator, judge endpoint, base model, training.

Every step may be repeated: what is there is used, except the training's namespace, which is made anew so that a
second demo starts from the base model.
"""

import asyncio
import contextlib
import json
import secrets
import sys

from examples.quickstart import manifests, waiting
from examples.quickstart.commands import ROOT, Cluster, StepError, run_in_view
from examples.quickstart.console import Clock
from examples.quickstart.options import Options
from openclaw_core import names

OPERATOR_NAMESPACE = "openclaw-system"
RELEASE = "openclaw"


class BringUp:
    """The steps, in the order `demo` calls them."""

    def __init__(self, cluster: Cluster, clock: Clock, options: Options, judge_key: str | None) -> None:
        self._cluster, self._clock, self._options = cluster, clock, options
        self._judge_key = judge_key or secrets.token_urlsafe(24)
        self.images: dict[str, str] = {}

    async def cluster_and_images(self) -> None:
        """`make cluster-up` and `make images`, with their own progress on the terminal."""
        environment = self._cluster.environment()
        if self._options.build:
            self._clock.say("cluster: up")
            await run_in_view([sys.executable, "-m", "openclaw_cluster", "up"], environment, timeout_sec=3600)
            self._clock.say("images: build and push what changed")
            await run_in_view([sys.executable, "-m", "dev.images.build"], environment, timeout_sec=3600)
        self.images = read_tags(self._cluster)

    async def operator_and_namespace(self) -> None:
        """Helm release and namespace side by side; then the pieces the training refers to."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._install_operator())
            group.create_task(self._fresh_namespace())

    async def training(self) -> manifests.Manifest:
        """Apply the OpenClawTraining, without users yet. Returns what was applied."""
        options = self._options
        manifest = manifests.training(
            options.model,
            reactions=options.reactions,
            learning_rate=options.learning_rate,
            judge_url=options.judge_url,
            judge_model=options.judge_model,
            users=False,
        )
        self._clock.say(f"kubectl apply: OpenClawTraining {manifest['metadata']['name']} in {options.namespace}")
        await self._cluster.apply([manifest], options.namespace)
        return manifest

    async def serving(self, training: str) -> None:
        """Until an engine and the gateway are ready."""
        await waiting.until(
            self._clock, "engine and gateway", 600, lambda: self._not_ready(training, names.ENGINE, names.GATEWAY)
        )

    async def everything(self, training: str) -> None:
        """Until the operator says Ready of the current generation."""
        await waiting.until(self._clock, "the whole training", 600, lambda: self._not_all_ready(training))

    async def users(self, training: str, replicas: int) -> None:
        """Scale the simulated users, as an admin would: by editing the resource."""
        patch = json.dumps({"spec": {"environmentHosting": {"replicas": replicas}}})
        await self._cluster.run_kubectl(
            "-n", self._options.namespace, "patch", names.PLURAL, training, "--type=merge", "-p", patch
        )

    async def _install_operator(self) -> None:
        self._clock.say("operator: helm upgrade --install")
        await self._cluster.run_helm(
            "upgrade",
            "--install",
            RELEASE,
            str(ROOT / "charts" / "openclaw-rl"),
            "--namespace",
            OPERATOR_NAMESPACE,
            "--create-namespace",
            "--take-ownership",  # a CRD applied by hand before becomes the release's
            *helm_values(self.images),
            "--wait",
            "--timeout=5m",
            timeout_sec=330,
        )
        self._clock.say("operator: runs")

    async def _fresh_namespace(self) -> None:
        """The base model is written while the operator comes up; the training follows when both are there."""
        namespace = self._options.namespace
        if await self._cluster.get("namespace", namespace):
            self._clock.say(f"removing the previous training (namespace {namespace})")
            with contextlib.suppress(StepError):
                await self._end_pods(namespace)
            await self._cluster.run_kubectl(
                "delete", "namespace", namespace, "--wait=true", "--timeout=180s", timeout_sec=200
            )
        await self._cluster.apply([manifests.namespace(namespace)])
        objects = [manifests.judge_key(self._judge_key), *manifests.base_model(self._options.model, self.images)]
        if self._options.judge_url is None:
            objects += manifests.judge_endpoint(self.images)
        await self._cluster.apply(objects, namespace)
        self._clock.say(f"base model: a Job writes {self._options.model} to the weights volume")
        await waiting.until(self._clock, "the base model", 900, self._model_missing)
        self._clock.say("base model: there")

    async def _end_pods(self, namespace: str) -> None:
        """Pods first: a namespace that still has some is looked at again only after half their grace period."""
        kinds = f"{names.PLURAL},deployments,jobs"
        await self._cluster.run_kubectl("-n", namespace, "delete", kinds, "--all", "--wait=true", "--timeout=60s")
        await self._cluster.run_kubectl(
            "-n", namespace, "wait", "--for=delete", "pods", "--all", "--timeout=60s", timeout_sec=70
        )

    async def _model_missing(self) -> str | None:
        job = await self._cluster.get("-n", self._options.namespace, "job", "prepare-model")
        status = job.get("status", {})
        if status.get("succeeded"):
            return None
        if any(c["type"] == "Failed" and c["status"] == "True" for c in status.get("conditions", [])):
            words = await self._cluster.run_kubectl(
                "-n", self._options.namespace, "logs", "job/prepare-model", "--tail=20"
            )
            raise StepError(f"the Job prepare-model failed:\n{words}")
        return await waiting.pods_missing(self._cluster, self._options.namespace, "job-name=prepare-model") or "runs"

    async def _not_ready(self, training: str, *components: str) -> str | None:
        """What keeps these components from a ready pod each."""
        missing = []
        for component in components:
            name = names.component(training, component)
            deployment = await self._cluster.get("-n", self._options.namespace, "deployment", name)
            if not deployment.get("status", {}).get("readyReplicas"):
                selector = manifests.component_selector(training, component)
                cause = await waiting.pods_missing(self._cluster, self._options.namespace, selector)
                missing.append(cause or f"{component} has no ready pod yet")
        if missing and (blocked := await self._blocked(training)):
            missing.append(blocked)
        return "; ".join(missing) or None

    async def _not_all_ready(self, training: str) -> str | None:
        found = await self._cluster.get("-n", self._options.namespace, names.PLURAL, training)
        status = found.get("status", {})
        ready = next((c for c in status.get("conditions", []) if c["type"] == "Ready"), None)
        current = status.get("observedGeneration") == found.get("metadata", {}).get("generation")
        if ready and ready["status"] == "True" and current:
            return None
        cause = await waiting.pods_missing(self._cluster, self._options.namespace)
        return cause or (ready or {}).get("message") or "the operator has not reported yet"

    async def _blocked(self, training: str) -> str | None:
        """The operator's own words when it refuses to start something."""
        found = await self._cluster.get("-n", self._options.namespace, names.PLURAL, training)
        status = found.get("status", {})
        if status.get("phase") in ("Blocked", "Invalid"):
            return f"{status['phase']}: {status.get('message', '')}"
        return None


def read_tags(cluster: Cluster) -> dict[str, str]:
    """References of the built images, by name."""
    file = cluster.cache / "images" / "tags.json"
    try:
        tags: dict[str, str] = json.loads(file.read_text())
    except OSError as error:
        raise StepError(f"no images were built ({file} is missing): run `make images`") from error
    return tags


def helm_values(images: dict[str, str]) -> list[str]:
    """`--set` words that make the chart use exactly these images."""
    components = ("operator", *names.COMPONENTS)
    pairs = [f"images.{component}={images[component]}" for component in components]
    return [word for pair in pairs for word in ("--set-string", pair)]
