"""`spec.policyServing`: engines and the gateway in front of them."""

from typing import Literal

from pydantic import AwareDatetime, Field

from openclaw_core.config.base import OpenObject, Resources, SecretKeyRef, SecretRef, Section


class Gateway(Section):
    """The OpenAI-compatible endpoint."""

    replicas: int = Field(default=1, ge=0, le=16, description="Gateway pods. More than 1 needs queue.store postgres.")
    api_key_secret_ref: SecretKeyRef | None = Field(
        default=None,
        description="Key clients must send as bearer token or x-api-key. None, and no apiKeysSecretRef: no "
        "authentication.",
    )
    api_keys_secret_ref: SecretRef | None = Field(
        default=None,
        description="Secret whose every entry is the key of one client, named by the entry; a name shows in metrics. "
        "Entries come and go without a restart, within about a minute. None: apiKeySecretRef alone.",
    )
    default_turn_type: Literal["main", "side"] = Field(
        default="main", description="Type of a turn without X-Turn-Type. main trains; side is served only."
    )
    max_concurrent: int = Field(default=256, ge=1, le=65536, description="Turns generating at once; the next gets 429.")
    max_in_flight_per_engine: int | None = Field(
        default=None,
        ge=1,
        le=65536,
        description="Requests one engine gets at once from one gateway pod; when all have their fill, 503. None: "
        "engines queue what they get.",
    )
    first_token_timeout_sec: int = Field(
        default=600,
        ge=1,
        le=86400,
        description="Seconds an engine may take to begin its answer (of a non-stream: for all of it); then 504.",
    )
    idle_timeout_sec: int = Field(
        default=300,
        ge=1,
        le=86400,
        description="Seconds an engine may be silent within a stream; then an error. Weight syncs do not count.",
    )
    next_state_grace_sec: int = Field(
        default=60,
        ge=0,
        le=86400,
        description="Seconds a finished turn without its next state counts in the backlog. 0: not at all.",
    )
    session_idle_sec: int = Field(
        default=1800, ge=10, le=604800, description="Seconds of silence after which a session ends."
    )
    on_store_down: Literal["reject", "serveUntracked"] = Field(
        default="reject", description="What happens to main turns while the store cannot be written."
    )
    resources: Resources = Field(default=Resources(), description="Requests and limits.")
    pod_template: OpenObject = Field(
        default={}, description="Strategic merge into the pod template (nodeSelector, tolerations, …)."
    )


class Hold(Section):
    """A lasting pause of submissions on an admin's word: 503 `submission_held`. Rolls no pod."""

    until: AwareDatetime = Field(
        description="End of the hold, with a time zone, at most 24 h ahead. Past: no hold. Later than that: refused in "
        "status (HoldTooLong) and not enforced."
    )
    reason: str = Field(min_length=1, max_length=200, description="Shown to clients and in status.")


class Rollout(Section):
    """A new weight version serves on canary engines first, and is promoted or rolled back by itself. Rolls no pod."""

    canary_replicas: int = Field(
        default=1,
        ge=1,
        le=255,
        description="Engines that serve the canary; fewer than replicas. Sessions go to it in this proportion.",
    )
    min_turns: int = Field(
        default=50,
        ge=1,
        le=100000,
        description="Judged turns that canary and stable version each need before scores decide anything.",
    )
    max_duration_sec: int = Field(
        default=1800,
        ge=60,
        le=86400,
        description="Seconds after which a canary that was not shown to be good enough is rolled back.",
    )
    max_score_drop: float = Field(
        default=0.2,
        ge=0,
        le=2,
        description="How much lower the canary's mean score (-1 to 1) may be. Promoted once it "
        "is shown (error at most 5 %) that it is not that much lower; 0: once it is shown to be higher.",
    )
    max_drift: float | None = Field(
        default=None,
        ge=0,
        le=100,
        description="Masked mean |log π_old − log π_rollout| of the canary's own samples of "
        "lag 0 above which it is rolled back at once. None: not looked at.",
    )


class PolicyServing(Section):
    """Engines (SGLang with its sync agent) and the gateway."""

    engine: Literal["sglang"] = Field(default="sglang", description="Serving engine.")
    device: Literal["cuda", "cpu"] = Field(default="cuda", description="Device engines run on.")
    replicas: int = Field(default=1, ge=0, le=256, description="Engine pods. 0: nothing is served.")
    host: str = Field(default="0.0.0.0", max_length=64, description="Address the gateway listens on.")
    port: int = Field(default=30000, ge=1024, le=65535, description="Public port of the gateway.")
    weight_sync_pause: bool = Field(
        default=True,
        description="true: 503 while weights are exchanged. false: requests wait at the gateway instead.",
    )
    pause_timeout_sec: int = Field(
        default=120,
        ge=10,
        le=3600,
        description="Seconds after which a pause ends by itself, whatever happened to its holder.",
    )
    in_flight: Literal["retract", "drain", "abort"] = Field(
        default="retract",
        description="Running turns during a sync: retract continues them on the new version, drain waits for them, "
        "abort ends them.",
    )
    double_buffer: bool | None = Field(
        default=None,
        description="true: engines read the next version into a second set of weights while the present one serves, so "
        "that the pause only exchanges them; it takes the model's size again of host memory, page-locked on GPUs. "
        "false, and models that do not bear it (quantized, mixtures of experts, pipeline parallel): read in the pause. "
        "None: true with device cpu, false with cuda and with storage.weights.transfer distributed.",
    )
    tensor_parallel_size: int = Field(default=1, ge=1, le=64, description="GPUs of one engine.")
    args: list[str] = Field(
        default=[], max_length=64, description="More arguments for SGLang's launch_server, one word each."
    )
    pinned_version: str | None = Field(
        default=None,
        max_length=32,
        pattern=r"^\d{1,12}-[0-9a-f]{8}$",
        description="Serve this weight version and no other. None: the newest published.",
    )
    hold: Hold | None = Field(default=None, description="Pause submissions until a time. None: no hold.")
    rollout: Rollout | None = Field(
        default=None, description="Try each new version on canary engines first. None: all engines take it at once."
    )
    resources: Resources = Field(default=Resources(), description="Requests and limits of the engine.")
    pod_template: OpenObject = Field(default={}, description="Strategic merge into the engine's pod template.")
    gateway: Gateway = Field(default=Gateway(), description="The OpenAI-compatible endpoint.")
