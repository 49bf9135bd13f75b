"""`spec.queue`, `spec.storage` and `spec.logging`: where experience and weights live."""

from typing import Literal

from pydantic import Field

from openclaw_core.config.base import SecretKeyRef, Section


class Postgres(Section):
    """An existing PostgreSQL database."""

    url_secret_ref: SecretKeyRef = Field(description="Secret with the connection URL.")


class Retention(Section):
    """How long turns that ended are kept, for exports and for who asks what was trained."""

    turns: int = Field(
        default=20000,
        ge=1000,
        le=10000000,
        description="Trained and dropped turns older than the newest this many turns are deleted.",
    )
    days: int = Field(
        default=0, ge=0, le=3650, description="They are deleted this many days after they began, too. 0: no such limit."
    )


class Queue(Section):
    """The experience store and its bound."""

    max_size: int = Field(default=512, ge=1, le=1000000, description="Samples queued at most.")
    drop_policy: Literal["reject", "block", "dropOldest"] = Field(
        default="reject", description="What a full queue does to a new turn."
    )
    store: Literal["sqlite", "postgres"] = Field(default="sqlite", description="Database of the store.")
    postgres: Postgres | None = Field(default=None, description="Connection; needed by store postgres.")
    retention: Retention = Field(default=Retention(), description="How long ended turns are kept.")


class Volume(Section):
    """A volume of the training: made by the operator, or an existing claim."""

    size: str = Field(
        default="10Gi",
        max_length=20,
        pattern=r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$",
        description="Size.",
    )
    storage_class_name: str | None = Field(
        default=None, max_length=253, description="StorageClass. None: the cluster's default."
    )
    existing_claim: str | None = Field(
        default=None, max_length=253, description="Claim to use as it is; never created, changed or deleted."
    )


class WeightsVolume(Volume):
    """Base model (optional), weight versions and checkpoints."""

    access_modes: list[Literal["ReadWriteOnce", "ReadWriteMany"]] = Field(
        default=["ReadWriteMany"], min_length=1, max_length=2, description="Access modes of the claim."
    )
    transfer: Literal["disk", "distributed"] = Field(
        default="disk",
        description="How engines get a version: from this volume, or broadcast by the trainer (one copy more in its "
        "pod's memory), and from this volume whenever that fails. LoRA adapters are always read from here.",
    )


class ExperienceVolume(Volume):
    """The SQLite file."""

    size: str = Field(
        default="2Gi",
        max_length=20,
        pattern=r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$",
        description="Size.",
    )


class Storage(Section):
    """Volumes of the training."""

    weights: WeightsVolume = Field(default=WeightsVolume(), description="Weights volume.")
    experience: ExperienceVolume = Field(default=ExperienceVolume(), description="Volume of the SQLite store.")


class Wandb(Section):
    """Weights & Biases logging."""

    api_key_secret_ref: SecretKeyRef = Field(description="Secret with the key.")
    project: str = Field(default="openclaw", min_length=1, max_length=128, description="Project.")


class Logging(Section):
    """What the trainer logs."""

    log_rollout_logprob_diff: bool = Field(
        default=True, description="Compute train_rollout_logprob_abs_diff, and with it DriftHigh."
    )
    tensorboard: bool = Field(default=False, description="Write TensorBoard files to the weights volume.")
    wandb: Wandb | None = Field(default=None, description="Log to Weights & Biases. None: do not.")
