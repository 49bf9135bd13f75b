"""`spec.policyTraining`: how scored turns become a new weight version."""

from typing import Literal

from pydantic import Field

from openclaw_core.config.base import OpenObject, Resources, Section


class Lora(Section):
    """Low-rank adaptation instead of full fine-tuning."""

    rank: int = Field(default=16, ge=1, le=512, description="Rank r.")
    alpha: int = Field(default=32, ge=1, le=1024, description="Scale: updates are multiplied by alpha / rank.")
    targets: list[str] = Field(
        default=["all-linear"], min_length=1, max_length=32, description="Module names, or all-linear."
    )
    publish: Literal["merged", "adapter"] = Field(
        default="merged",
        description="merged: whole weights, exchanged under a pause. adapter: only the adapter; engines load it beside "
        "the old one and new turns go over to it without a pause. adapter needs q_proj and v_proj together, and "
        "gate_proj with up_proj, unless targets is all-linear.",
    )


class Checkpoint(Section):
    """Trainer checkpoints on the weights volume."""

    every_steps: int = Field(default=1, ge=1, le=10000, description="Optimizer steps between checkpoints.")
    keep: int = Field(default=3, ge=1, le=100, description="Newest checkpoints kept.")


class PolicyTraining(Section):
    """Method, staleness, optimizer. B = rolloutBatchSize, η = maxHeadOffPolicyness."""

    engine: Literal["fsdp", "megatron"] = Field(default="fsdp", description="Training engine.")
    device: Literal["cuda", "cpu"] = Field(default="cuda", description="Device the trainer runs on.")
    method: Literal["binaryRl", "opd", "topkDistill", "combine"] = Field(
        default="binaryRl", description="Learning method."
    )
    max_head_off_policyness: int = Field(
        default=2,
        ge=0,
        le=64,
        description="η: at most (η+1)·B turns are on their way to the trainer. 0: synchronous.",
    )
    stale_filter_steps: int = Field(
        default=8, ge=0, le=1024, description="Samples older than this many versions are dropped. At least η."
    )
    on_stale: Literal["reject", "serveUntracked"] = Field(
        default="reject", description="Beyond η: 429, or serve the turn without recording it."
    )
    queue_type: Literal["fifo"] = Field(default="fifo", description="Order in which samples are trained.")
    rollout_batch_size: int = Field(default=16, ge=1, le=4096, description="B: samples of one optimizer step.")
    min_batch: int = Field(default=8, ge=1, le=4096, description="Samples that suffice after batchWaitSec. At most B.")
    batch_wait_sec: int = Field(
        default=300, ge=0, le=86400, description="Seconds to wait for a whole batch before minBatch suffices."
    )
    learning_rate: float = Field(default=1e-5, ge=0, le=1, description="Adam's step size. 0 trains nothing.")
    clip_low: float = Field(default=0.2, ge=0, le=1, description="PPO clip: ratio at least 1 − clipLow.")
    clip_high: float = Field(default=0.28, ge=0, le=10, description="PPO clip: ratio at most 1 + clipHigh.")
    kl_coef: float = Field(default=0.0, ge=0, le=10, description="Weight of the KL to the base. 0: no reference.")
    kl_type: Literal["lowVar"] = Field(default="lowVar", description="Estimator of the KL term.")
    entropy_coef: float = Field(default=0.0, ge=0, le=10, description="Weight of the entropy bonus. 0: none.")
    advantage: Literal["none", "runningMean"] = Field(
        default="none", description="none: A = reward. runningMean: A = reward − its running mean."
    )
    off_policy: Literal["decoupled", "mask", "rolloutAsOld", "none"] = Field(
        default="decoupled", description="Correction for samples of older versions."
    )
    max_grad_norm: float = Field(default=1.0, ge=0, le=1000, description="Gradient clip. 0: none.")
    max_sequence_tokens: int = Field(
        default=32768,
        ge=16,
        le=1048576,
        description="Longer samples (prompt + answer) are dropped(too_long).",
    )
    dtype: Literal["bfloat16", "float32"] = Field(default="bfloat16", description="Parameter type.")
    seed: int = Field(default=0, ge=0, le=2**31 - 1, description="Seed of the trainer's randomness.")
    lora: Lora | None = Field(default=None, description="Low-rank adaptation. None: full fine-tuning.")
    nodes: int = Field(default=1, ge=1, le=256, description="Trainer pods.")
    procs_per_node: int = Field(default=1, ge=1, le=16, description="Processes (GPUs) of one trainer pod.")
    checkpoint: Checkpoint = Field(default=Checkpoint(), description="Trainer checkpoints.")
    resources: Resources = Field(default=Resources(), description="Requests and limits.")
    pod_template: OpenObject = Field(default={}, description="Strategic merge into the pod template.")

    @property
    def adapter(self) -> Lora | None:
        """The LoRA whose adapter alone is published; None when versions are whole weights."""
        return self.lora if self.lora is not None and self.lora.publish == "adapter" else None
