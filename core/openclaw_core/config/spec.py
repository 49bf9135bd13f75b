"""The whole `spec` of an OpenClawTraining, and the rules that span sections.

The CRD carries the same rules as CEL (`rules`), so a mistake is refused at admission; `TrainingSpec` checks them again
for offline validation and for objects admitted by an older CRD.
"""

from typing import Self

from pydantic import Field, model_validator

from openclaw_core.config import rules
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
    api: Api = Field(default=Api(), description="The judge endpoint.")
    judge: Judge = Field(description="The judge model.")
    logging: Logging = Field(default=Logging(), description="What the trainer logs.")
    storage: Storage = Field(default=Storage(), description="Volumes.")
    suspend: bool = Field(default=False, description="true: delete the pods, keep volumes, Services and store.")
    managed_by: str | None = Field(
        default=None,
        max_length=253,
        pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        description="Controller that acts on this training, e.g. kueue.x-k8s.io/multikueue. None or "
        "openclawrl.io/operator: this operator; with any other value it leaves the training alone.",
    )
    retain_storage: bool = Field(default=False, description="true: claims the operator made outlive the training.")

    @model_validator(mode="after")
    def _cross_field_rules(self) -> Self:
        broken = rules.broken(self)
        if broken:
            raise ValueError("; ".join(broken))
        return self

    @property
    def broadcasts(self) -> bool:
        """The trainer sends versions to engines itself. Adapters are small: they are always read from the volume."""
        return self.storage.weights.transfer == "distributed" and self.policy_training.adapter is None
