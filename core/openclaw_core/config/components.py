"""What each process reads from its mounted `config.json`: only the fields that concern it.

The operator renders one file per component from the spec, and a component's revision hash covers exactly that file
and its pod: an edit of the judge's concurrency does not roll the trainer. Secrets are never in here; they arrive as
environment variables.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pydantic import ValidationError

from openclaw_core import names
from openclaw_core.config.base import Resources, Section
from openclaw_core.config.model import Model, ModelSource
from openclaw_core.config.policy_serving import Gateway, PolicyServing
from openclaw_core.config.policy_training import Lora, PolicyTraining
from openclaw_core.config.queue_and_storage import Logging, Queue
from openclaw_core.config.reward_judging import Api, Judge, RewardJudging
from openclaw_core.config.spec import TrainingSpec

_NOT_OURS: dict[str, Resources | dict[str, str]] = {"resources": Resources(), "pod_template": {}}
"""The pod's own fields: hashed with the pod, not read by the process."""
_SCALED: dict[str, Resources | dict[str, str] | int] = {**_NOT_OURS, "replicas": 1}
"""The same for sections with `replicas`: scaling must not change the file and so roll the pods."""


class ConfigError(ValueError):
    """The mounted configuration or a needed environment variable is missing or wrong."""


def token_of(environ: Mapping[str, str], variable: str, why: str) -> str:
    """A token the operator sets in every pod that needs it. ConfigError names the variable and what needs it."""
    token = environ.get(variable, "").strip()
    if not token:
        raise ConfigError(f"environment variable {variable} is empty: {why}")
    return token


class ComponentConfig(Section):
    """Fields of every component: whose it is."""

    training: str
    namespace: str

    @classmethod
    def load(cls, path: str | None = None) -> Self:
        """Read `path`, else $OPENCLAW_CONFIG, else the mounted file. ConfigError names file and field."""
        file = Path(path or os.environ.get(names.ENV_CONFIG) or names.CONFIG_FILE)
        try:
            return cls.model_validate_json(file.read_bytes())
        except OSError as error:
            raise ConfigError(f"cannot read configuration {file}: {error.strerror}") from error
        except ValidationError as error:
            raise ConfigError(f"configuration {file} is invalid: {error}") from error


class GatewayConfig(ComponentConfig):
    """The gateway, its store included."""

    served_name: str
    host: str
    port: int
    weight_sync_pause: bool
    gateway: Gateway
    queue: Queue
    block_timeout_sec: int
    max_head_off_policyness: int
    rollout_batch_size: int
    on_stale: str
    judge_concurrency: int
    votes: int
    fire_on_turn_end: bool
    judging_mode: str
    adapters: bool = False
    """Requests name the version they want as a LoRA adapter; engines may hold several."""


class EngineConfig(ComponentConfig):
    """The sync agent and the SGLang it starts."""

    model: Model
    device: str
    dtype: str
    tensor_parallel_size: int
    in_flight: str
    double_buffer: bool
    args: list[str]
    adapter: Lora | None = None
    """Set where versions are LoRA adapters that are exchanged beside the base model."""


class JudgeConfig(ComponentConfig):
    """The judge worker."""

    gateway_url: str
    endpoint: str
    """Base URL of the judge endpoint, ending in /v1."""
    reward_judging: RewardJudging
    api: Api
    judge: Judge


class JudgeModelConfig(ComponentConfig):
    """SGLang that serves the judge model."""

    model: ModelSource
    served_name: str
    device: str
    tensor_parallel_size: int
    args: list[str]


class TrainerConfig(ComponentConfig):
    """The trainer."""

    gateway_url: str
    model: Model
    policy_training: PolicyTraining
    logging: Logging
    broadcasts: bool = False
    """A sender process beside rank 0 broadcasts versions to engines that ask (`transfer: distributed`)."""


class EnvironmentConfig(ComponentConfig):
    """The environment. `gateway_url` ends in /v1."""

    gateway_url: str
    served_name: str
    kind: str


def gateway_config(training: str, namespace: str, spec: TrainingSpec) -> GatewayConfig:
    serving, learning = spec.policy_serving, spec.policy_training
    return GatewayConfig(
        training=training,
        namespace=namespace,
        served_name=spec.model.served_name,
        host=serving.host,
        port=serving.port,
        weight_sync_pause=serving.weight_sync_pause,
        gateway=serving.gateway.model_copy(update=_SCALED),
        queue=spec.queue,
        block_timeout_sec=spec.api.timeout_sec,
        max_head_off_policyness=learning.max_head_off_policyness,
        rollout_batch_size=learning.rollout_batch_size,
        on_stale=learning.on_stale,
        judge_concurrency=spec.reward_judging.judge_concurrency,
        votes=spec.reward_judging.votes,
        fire_on_turn_end=spec.reward_judging.fire_on_turn_end,
        judging_mode=spec.reward_judging.mode,
        adapters=learning.adapter is not None,
    )


def engine_config(training: str, namespace: str, spec: TrainingSpec) -> EngineConfig:
    serving = spec.policy_serving
    return EngineConfig(
        training=training,
        namespace=namespace,
        model=spec.model,
        device=serving.device,
        dtype=spec.policy_training.dtype,
        tensor_parallel_size=serving.tensor_parallel_size,
        in_flight=serving.in_flight,
        double_buffer=_double_buffer(spec),
        args=serving.args,
        adapter=spec.policy_training.adapter,
    )


def _double_buffer(spec: TrainingSpec) -> bool:
    """By itself not where versions come by broadcast: nothing would read what was read ahead."""
    serving = spec.policy_serving
    if spec.policy_training.adapter is not None:
        return False
    by_itself = serving.device == "cpu" and not spec.broadcasts
    return by_itself if serving.double_buffer is None else serving.double_buffer


def judge_config(training: str, namespace: str, spec: TrainingSpec) -> JudgeConfig:
    return JudgeConfig(
        training=training,
        namespace=namespace,
        gateway_url=internal_url(training, namespace),
        endpoint=judge_url(training, namespace, spec),
        reward_judging=spec.reward_judging.model_copy(update={**_SCALED, "deployed": None}),
        api=spec.api,
        judge=spec.judge,
    )


def judge_model_config(training: str, namespace: str, spec: TrainingSpec) -> JudgeModelConfig:
    """Only for a spec with `rewardJudging.deployed`."""
    deployed = spec.reward_judging.deployed
    if deployed is None:
        raise ConfigError("spec.rewardJudging.deployed is not set")
    return JudgeModelConfig(
        training=training,
        namespace=namespace,
        model=deployed.model,
        served_name=spec.judge.model,
        device=deployed.device,
        tensor_parallel_size=deployed.tensor_parallel_size,
        args=deployed.args,
    )


def trainer_config(training: str, namespace: str, spec: TrainingSpec) -> TrainerConfig:
    return TrainerConfig(
        training=training,
        namespace=namespace,
        gateway_url=internal_url(training, namespace),
        model=spec.model,
        policy_training=spec.policy_training.model_copy(update=_NOT_OURS),
        logging=spec.logging,
        broadcasts=spec.broadcasts,
    )


def environment_config(training: str, namespace: str, spec: TrainingSpec) -> EnvironmentConfig:
    return EnvironmentConfig(
        training=training,
        namespace=namespace,
        gateway_url=public_url(training, namespace, spec.policy_serving),
        served_name=spec.model.served_name,
        kind=spec.environment_hosting.kind,
    )


def internal_url(training: str, namespace: str) -> str:
    """Base URL of the gateway's internal port, inside the cluster."""
    service = names.component(training, names.GATEWAY)
    return f"http://{service}.{namespace}.svc:{names.PORT_GATEWAY_INTERNAL}"


def judge_url(training: str, namespace: str, spec: TrainingSpec) -> str:
    """Where judges ask: `spec.api.baseUrl`, or the judge model of this training."""
    if spec.api.base_url is not None:
        return spec.api.base_url
    return f"http://{names.component(training, names.JUDGE_MODEL)}.{namespace}.svc:{names.PORT_SGLANG}/v1"


def public_url(training: str, namespace: str, serving: PolicyServing) -> str:
    """The OpenAI endpoint inside the cluster, ending in /v1."""
    return f"http://{names.component(training, names.GATEWAY)}.{namespace}.svc:{serving.port}/v1"
