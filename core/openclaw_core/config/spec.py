"""The whole `spec` of an OpenClawTraining, and the rules that span sections.

The CRD carries the same rules as CEL (`CEL_RULES`), so a mistake is refused at admission; `TrainingSpec` checks them
again for offline validation and for objects admitted by an older CRD.
"""

from typing import NamedTuple, Self

from pydantic import Field, model_validator

from openclaw_core.config.base import Section
from openclaw_core.config.environment_hosting import EnvironmentHosting
from openclaw_core.config.model import Model
from openclaw_core.config.policy_serving import PolicyServing
from openclaw_core.config.policy_training import PolicyTraining
from openclaw_core.config.queue_and_storage import Logging, Queue, Storage
from openclaw_core.config.reward_judging import Api, Judge, RewardJudging


class TrainingSpec(Section):
    """Desired state of one online-RL training."""

    model: Model = Field(description="Which policy is served and trained.")
    policy_serving: PolicyServing = Field(default=PolicyServing(), description="Engines and gateway.")
    environment_hosting: EnvironmentHosting = Field(
        default=EnvironmentHosting(), description="Who talks to the policy."
    )
    reward_judging: RewardJudging = Field(default=RewardJudging(), description="The judge workers.")
    policy_training: PolicyTraining = Field(default=PolicyTraining(), description="The trainer.")
    queue: Queue = Field(default=Queue(), description="The experience store and its bound.")
    api: Api = Field(description="The judge endpoint.")
    judge: Judge = Field(description="The judge model.")
    logging: Logging = Field(default=Logging(), description="What the trainer logs.")
    storage: Storage = Field(default=Storage(), description="Volumes.")
    suspend: bool = Field(default=False, description="true: delete the pods, keep volumes, Services and store.")
    retain_storage: bool = Field(default=False, description="true: claims the operator made outlive the training.")

    @model_validator(mode="after")
    def _cross_field_rules(self) -> Self:
        broken = [message for message in _broken_rules(self) if message]
        if broken:
            raise ValueError("; ".join(broken))
        return self


class CelRule(NamedTuple):
    """One x-kubernetes-validations entry of `spec`. `message_expression` shows the values."""

    rule: str
    message: str
    message_expression: str | None = None


_BACKLOG = "(self.policyTraining.maxHeadOffPolicyness + 1) * self.policyTraining.rolloutBatchSize"
_GPU = "nvidia.com/gpu"

CEL_RULES: tuple[CelRule, ...] = (
    CelRule(
        "has(self.model.path) != has(self.model.huggingFace)",
        "spec.model: set exactly one of path and huggingFace",
    ),
    CelRule(
        f"{_BACKLOG} <= self.queue.maxSize",
        "spec.queue.maxSize must hold (policyTraining.maxHeadOffPolicyness + 1) * rolloutBatchSize samples",
        f"'spec.queue.maxSize is %d but must be at least %d = (policyTraining.maxHeadOffPolicyness + 1) * "
        f"rolloutBatchSize'.format([self.queue.maxSize, {_BACKLOG}])",
    ),
    CelRule(
        "self.policyTraining.minBatch <= self.policyTraining.rolloutBatchSize",
        "spec.policyTraining.minBatch must be at most rolloutBatchSize",
    ),
    CelRule(
        "self.policyTraining.staleFilterSteps >= self.policyTraining.maxHeadOffPolicyness",
        "spec.policyTraining.staleFilterSteps must be at least maxHeadOffPolicyness",
    ),
    CelRule(
        "self.policyServing.gateway.replicas <= 1 || self.queue.store == 'postgres'",
        "spec.policyServing.gateway.replicas above 1 needs spec.queue.store postgres",
    ),
    CelRule(
        "self.queue.store != 'postgres' || has(self.queue.postgres)",
        "spec.queue.store postgres needs spec.queue.postgres.urlSecretRef",
    ),
    CelRule(
        "self.rewardJudging.votes % 2 == 1",
        "spec.rewardJudging.votes must be odd, so that a majority exists",
    ),
    CelRule(
        "self.rewardJudging.votes == 1 || double(self.judge.temperature) > 0.0",
        "spec.rewardJudging.votes above 1 needs spec.judge.temperature above 0",
    ),
    CelRule(
        "self.policyTraining.engine != 'megatron' || self.policyTraining.device != 'cuda' || "
        f"(has(self.policyTraining.resources.limits) && '{_GPU}' in self.policyTraining.resources.limits)",
        f"spec.policyTraining.engine megatron on cuda needs spec.policyTraining.resources.limits['{_GPU}']",
    ),
    CelRule(
        "self.environmentHosting.kind != 'custom' || has(self.environmentHosting.image)",
        "spec.environmentHosting.kind custom needs spec.environmentHosting.image",
    ),
    CelRule(
        "!self.environmentHosting.enabled || !has(self.policyServing.gateway.apiKeysSecretRef) || "
        "has(self.policyServing.gateway.apiKeySecretRef)",
        "spec.policyServing.gateway.apiKeysSecretRef with spec.environmentHosting needs apiKeySecretRef too: the key "
        "the environment sends",
    ),
)


def _broken_rules(spec: TrainingSpec) -> list[str | None]:
    """The same rules as CEL_RULES, in the same order; None where one holds."""
    training, serving, judging = spec.policy_training, spec.policy_serving, spec.reward_judging
    backlog = (training.max_head_off_policyness + 1) * training.rollout_batch_size
    holds = (
        (spec.model.path is None) != (spec.model.hugging_face is None),
        backlog <= spec.queue.max_size,
        training.min_batch <= training.rollout_batch_size,
        training.stale_filter_steps >= training.max_head_off_policyness,
        serving.gateway.replicas <= 1 or spec.queue.store == "postgres",
        spec.queue.store != "postgres" or spec.queue.postgres is not None,
        judging.votes % 2 == 1,
        judging.votes == 1 or spec.judge.temperature > 0,
        training.engine != "megatron" or training.device != "cuda" or _GPU in training.resources.limits,
        spec.environment_hosting.kind != "custom" or spec.environment_hosting.image is not None,
        not spec.environment_hosting.enabled
        or serving.gateway.api_keys_secret_ref is None
        or serving.gateway.api_key_secret_ref is not None,
    )
    return [None if ok else rule.message for ok, rule in zip(holds, CEL_RULES, strict=True)]
