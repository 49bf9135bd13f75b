"""`status` of an OpenClawTraining: written by the operator alone, read by people, the CLI and the demo.

The CRD's status schema is generated from `TrainingStatus`. Every field is optional: an object just created has none.
Condition types and phases are enums here so that a reader of the status finds the same words as its writer.
"""

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class Phase(StrEnum):
    """One word for people; machines read conditions."""

    INVALID = "Invalid"
    """The spec breaks a rule; nothing is changed until it is edited."""
    BLOCKED = "Blocked"
    """A Secret, key or claim is missing; what needs it is not started."""
    STARTING = "Starting"
    RUNNING = "Running"
    DEGRADED = "Degraded"
    """Was running before; a component is not ready now."""
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"


class ConditionType(StrEnum):
    """Order = order in status."""

    READY = "Ready"
    CONFIG_VALID = "ConfigValid"
    SECRETS_RESOLVED = "SecretsResolved"
    SERVING_READY = "ServingReady"
    JUDGING_READY = "JudgingReady"
    ENVIRONMENT_READY = "EnvironmentReady"
    TRAINING_READY = "TrainingReady"
    WEIGHT_SYNC_PAUSED = "WeightSyncPaused"
    WEIGHT_SYNC_DEGRADED = "WeightSyncDegraded"
    DRIFT_HIGH = "DriftHigh"
    SUBMISSIONS_HELD = "SubmissionsHeld"
    CANARY_SERVING = "CanaryServing"
    """Only of trainings with `policyServing.rollout`."""
    SUSPENDED = "Suspended"


class Part(BaseModel):
    """A part of the status. Absent = not known yet."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)


class Component(Part):
    """Pods of one component."""

    ready: int = Field(default=0, description="Pods of the current revision that are ready.")
    desired: int = Field(default=0, description="Pods wanted.")
    updated: int = Field(default=0, description="Pods of the current revision.")
    summary: str = Field(default="0/0", description="ready/desired, for people.")


class Serving(Component):
    """Engine pods; `replicas` and `selector` serve the scale subresource."""

    replicas: int = Field(default=0, description="Engine pods that exist.")
    selector: str = Field(default="", description="Label selector of the engine pods.")


class Condition(Part):
    """A condition as in metav1.Condition."""

    type: str = Field(description="What is stated.", max_length=64)
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    reason: str = Field(description="One fixed word per state.", max_length=64)
    message: str = Field(default="", description="For people: what is wrong and how to mend it.", max_length=4096)
    last_transition_time: str = Field(
        description="When status last changed.", json_schema_extra={"format": "date-time"}
    )
    observed_generation: int | None = Field(default=None, description="Generation of the spec it was computed from.")


class EngineWeights(Part):
    """Weights of one engine pod."""

    pod: str = Field(description="Pod name.", max_length=253)
    version: str | None = Field(default=None, description="Version the engine serves; absent while it loads.")
    phase: str | None = Field(default=None, description="What its sync agent is doing.")
    sglang_version: str | None = Field(default=None, description="Version of SGLang.")
    checksum: str | None = Field(default=None, description="Checksum of the weights in the engine's memory.")
    error: str | None = Field(default=None, description="The agent's last error.")


class LastSync(Part):
    """The last weight sync that ended."""

    epoch: int = Field(description="Number of the hold; rises by one with each.")
    version: str = Field(description="Version it should bring.")
    started_at: str = Field(description="When the hold was written.", json_schema_extra={"format": "date-time"})
    pause_ms: float = Field(description="Milliseconds from the hold to its release.")
    engine_ms: float | None = Field(default=None, description="Milliseconds of the slowest engine's own update.")
    result: Literal["Succeeded", "Partial", "Failed", "Abandoned"] = Field(
        description="Partial: at least one engine has it, the others follow alone."
    )
    missing_acks: int = Field(
        default=0, description="Gateways that did not confirm the hold within 500 ms; it went on without their word."
    )


class SyncRequest(Part):
    """The one-shot sync asked for last, by the training's annotation `openclawrl.io/sync`."""

    id: str = Field(description="The annotation's value.", max_length=80)
    result: Literal["Waiting", "Running", "Succeeded", "Failed", "Invalid"] = Field(
        description="Waiting: not taken up yet. Invalid: the value is no request id."
    )
    message: str | None = Field(default=None, description="More about the result.", max_length=512)


RolloutState = Literal["Waiting", "Serving", "Promoting", "Promoted", "RolledBack", "Cancelled"]
"""Of a canary; all but the first three are its end."""


class RolloutSide(Part):
    """One of the two versions that are compared."""

    version: str = Field(description="The version.")
    turns: int = Field(description="Its turns judged since the canary began.")
    score_mean: float | None = Field(default=None, description="Mean score of those turns, -1 to 1.")


class Rollout(Part):
    """The canary that serves now, or the one that did last."""

    state: RolloutState = Field(
        description="Waiting: the newest version is no canary yet. Cancelled: by an edit of the spec."
    )
    started_at: str | None = Field(
        default=None, description="When it became canary.", json_schema_extra={"format": "date-time"}
    )
    canary: RolloutSide = Field(description="The new version.")
    stable: RolloutSide = Field(description="The version served beside it.")
    message: str = Field(default="", description="What the comparison says, or what is waited for.", max_length=512)


class Weights(Part):
    """Versions `<N>-<8 hex>`: what was announced, what engines should serve, what they serve."""

    target: str | None = Field(default=None, description="Version engines should serve.")
    published: str | None = Field(default=None, description="Newest version the trainer announced.")
    serving: str | None = Field(default=None, description="Version of the last completed sync.")
    bad_versions: list[str] | None = Field(default=None, description="Versions that failed twice.", max_length=64)
    per_engine: list[EngineWeights] | None = Field(
        default=None,
        description="One entry per engine pod.",
        max_length=256,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["pod"]},
    )
    last_sync: LastSync | None = Field(default=None, description="The last weight sync that ended.")
    rollout: Rollout | None = Field(default=None, description="The canary, where spec.policyServing.rollout is set.")
    sync_request: SyncRequest | None = Field(default=None, description="The one-shot sync asked for last.")


class Samples(Part):
    """The store's accounting.

    served = recorded + untracked; recorded = trained + dropped + queued + leased + waiting.
    """

    served: int = Field(default=0, description="Turns served.")
    recorded: int = Field(default=0, description="Turns recorded for training.")
    untracked: int = Field(default=0, description="Turns served without recording.")
    trained: int = Field(default=0, description="Turns trained.")
    dropped: int = Field(default=0, description="Turns dropped, any reason.")
    dropped_by: dict[str, int] = Field(default={}, description="Turns dropped, by reason.")
    queued: int = Field(default=0, description="Scored turns waiting for the trainer.")
    leased: int = Field(default=0, description="Turns the trainer holds.")
    waiting: int = Field(default=0, description="Turns generating, waiting for their next state or for the judge.")


class Training(Part):
    """Numbers of the loop, refreshed at most every 10 seconds."""

    step: int | None = Field(default=None, description="Optimizer steps taken.")
    reward_mean: float | None = Field(default=None, description="Mean reward of the last step's samples.")
    rollout_logprob_abs_diff: float | None = Field(
        default=None, description="Masked mean |log π_old − log π_rollout| of the last step's samples."
    )
    phase: str | None = Field(default=None, description="What the trainer is doing.")
    capacity: int | None = Field(default=None, description="Turns that may still be admitted.")
    samples: Samples | None = Field(default=None, description="The store's accounting.")
    refused: dict[str, int] | None = Field(default=None, description="Refusals of the gateway process, by reason.")


class TrainingStatus(Part):
    """Observed state of one training."""

    observed_generation: int | None = Field(default=None, description="Generation of the spec last acted on.")
    phase: str | None = Field(default=None, description="One word; see conditions for machines.")
    message: str | None = Field(default=None, description="Message of the condition that explains the phase.")
    endpoint: str | None = Field(default=None, description="OpenAI endpoint inside the cluster, ends in /v1.")
    serving: Serving | None = Field(default=None, description="Engine pods.")
    gateway: Component | None = Field(default=None, description="Gateway pods.")
    judging: Component | None = Field(default=None, description="Judge pods.")
    judge_model: Component | None = Field(default=None, description="Pods of a judge model served here.")
    trainer: Component | None = Field(default=None, description="Trainer pods.")
    environment: Component | None = Field(default=None, description="Environment pods.")
    weights: Weights | None = Field(default=None, description="Weight versions.")
    training: Training | None = Field(default=None, description="Numbers of the loop.")
    conditions: list[Condition] | None = Field(
        default=None,
        description="Conditions by type.",
        max_length=32,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
