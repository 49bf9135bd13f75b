"""Messages between our own processes, as pydantic models; the URL of each is in its docstring.

Gateway internal port (`names.PORT_GATEWAY_INTERNAL`), bearer token `names.ENV_GATEWAY_TOKEN`: the experience store's
API for judge and trainer, and the operator's pause post. Agent port (`names.PORT_AGENT`), bearer token
`names.ENV_AGENT_TOKEN`: prepare and sync. All bodies are JSON; errors are `{"error": {"message", "code"}}`.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from openclaw_core.leases import Canary


class Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


# ---------------------------------------------------------------- experience store: judge


class LeaseTurns(Message):
    """POST /internal/turns/lease → LeasedTurns. Long poll: waits ≤ wait_sec for at least one turn."""

    worker: str
    max_turns: int = Field(ge=1, le=1024)
    lease_sec: float = Field(gt=0, le=3600)
    wait_sec: float = Field(0.0, ge=0, le=30)


class JudgeTurn(Message):
    """What the judge sees of a turn. `next_state` = every message after the assistant message, in order."""

    id: int
    lease: str
    session: str
    turn: int
    messages: list[dict[str, Any]]
    """The request's messages (before the response)."""
    response: dict[str, Any]
    """The assistant message as the client saw it (role, content, tool_calls …)."""
    next_state: list[dict[str, Any]]
    edited: bool = False
    """True when the client rewrote the history, so the next state is only what follows its last answer."""


class LeasedTurns(Message):
    turns: list[JudgeTurn]


class ScoreTurn(Message):
    """POST /internal/turns/score → Accepted. `score` in {-1, 0, 1}; `votes` None where one did not parse."""

    id: int
    lease: str
    score: int = Field(ge=-1, le=1)
    votes: list[int | None]


class ExtendTurns(Message):
    """POST /internal/turns/extend → Accepted (ids whose lease was still held)."""

    ids: list[int]
    leases: list[str]
    lease_sec: float = Field(gt=0, le=3600)


class DropTurn(Message):
    """POST /internal/turns/drop → Accepted. Reasons of the judge: `unjudged` (no vote parsed)."""

    id: int
    lease: str
    reason: str


class ReleaseTurns(Message):
    """POST /internal/turns/release → Accepted. Gives turns back unscored (judge shuts down)."""

    ids: list[int]
    leases: list[str]


class Accepted(Message):
    """Ids the store acted on; ids missing here were not leased by the caller any more."""

    ids: list[int]


# ---------------------------------------------------------------- experience store: trainer


class Span(Message):
    """Output tokens [start, end) were sampled by this weight version."""

    version: str
    start: int = Field(ge=0)
    end: int = Field(ge=0)


class Sampling(Message):
    """Every sampling parameter the gateway sent. Logprobs are log_softmax(logits / temperature)."""

    temperature: float
    """0 = greedy; the trainer then uses temperature 1."""
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0


class Sample(Message):
    """One scored turn. `output_ids` and `rollout_logprobs` have the same length T ≥ 1, engine's own values."""

    id: int
    session: str
    turn: int
    prompt_ids: list[int]
    output_ids: list[int]
    rollout_logprobs: list[float]
    spans: list[Span]
    sampling: Sampling
    score: int


class LeaseSamples(Message):
    """POST /internal/samples/lease → LeasedSamples. FIFO by time ready.

    Answers as soon as `batch` samples are ready, or ≥ `min_batch` and the oldest is ready for `batch_wait_sec`;
    else waits ≤ `wait_sec` (long poll) and answers an empty list.
    """

    trainer_epoch: int = Field(ge=0)
    batch: int = Field(ge=1)
    min_batch: int = Field(ge=1)
    batch_wait_sec: float = Field(ge=0)
    lease_sec: float = Field(gt=0, le=3600)
    wait_sec: float = Field(0.0, ge=0, le=30)


class LeasedSamples(Message):
    lease: str
    samples: list[Sample]


class AckSamples(Message):
    """POST /internal/samples/ack → Accepted. Idempotent. An older trainer epoch is refused (409).

    `version` is the published version that trained them, or the current one when nothing was published. The samples
    leave `leased` and count as trained.
    """

    trainer_epoch: int = Field(ge=0)
    ids: list[int]
    version: str


class ExtendSamples(Message):
    """POST /internal/samples/extend → Accepted."""

    trainer_epoch: int = Field(ge=0)
    ids: list[int]
    lease_sec: float = Field(gt=0, le=3600)


class ReleaseSamples(Message):
    """POST /internal/samples/release → Accepted. Back to the queue, at their old place."""

    trainer_epoch: int = Field(ge=0)
    ids: list[int]


class DropSamples(Message):
    """POST /internal/samples/drop → Accepted. Reasons of the trainer: `stale`, `too_long`, `nan`."""

    trainer_epoch: int = Field(ge=0)
    ids: list[int]
    reason: str


class Waiting(Message):
    generating: int = 0
    next_state: int = 0
    judge: int = 0


class RolloutScores(Message):
    """Turns judged while a canary served, by the version that answered and by score ("-1", "0", "1")."""

    epoch: int
    """`leases.Canary.epoch`: which canary."""
    scores: dict[str, dict[str, int]]


class Stats(Message):
    """GET /internal/stats. The identity, true after any crash:

    served = recorded + Σ untracked;  recorded = trained + Σ dropped + queued + leased + Σ waiting.
    """

    served: int = 0
    recorded: int = 0
    untracked: dict[str, int] = {}
    trained: int = 0
    dropped: dict[str, int] = {}
    queued: int = 0
    leased: int = 0
    waiting: Waiting = Waiting()
    capacity: int = 0
    refused: dict[str, int] = {}
    """Refusals since the process started: paused, staleness_bound, queue_full, …"""
    scores: dict[str, int] = {}
    """Scored turns by score: "-1", "0", "1"."""
    trainer_epoch: int = 0
    """Highest epoch a trainer came with; older ones are refused."""
    rollout: RolloutScores | None = None
    """Of the newest canary that turns were judged under."""


# ---------------------------------------------------------------- experience store: export and erasure


class ExportedTurn(Message):
    """A line of GET /internal/export?state=…&state=…&session=…: newline-delimited JSON, oldest turn first.

    `state` as in `Stats` (`next_state`, `judge`, `queued`, `leased`, `trained`, `dropped`); `reason` is why it was
    dropped. What was said and sampled is kept of turns that train or may train, and None of those that were dropped.
    """

    id: int
    session: str
    owner: str
    """Fingerprint of the client's key."""
    turn: int
    state: str
    reason: str | None
    began_at: float
    """Unix seconds."""
    score: int | None
    votes: list[int | None] | None
    messages: list[dict[str, Any]] | None
    response: dict[str, Any] | None
    next_state: list[dict[str, Any]] | None
    edited: bool
    prompt_ids: list[int] | None
    output_ids: list[int] | None
    rollout_logprobs: list[float] | None
    spans: list[Span] | None
    sampling: Sampling | None


class EraseSession(Message):
    """POST /internal/sessions/erase → Erased. Answered once nothing of the session is in the database's files."""

    session: str = Field(min_length=1, max_length=256)
    owner: str | None = None
    """Fingerprint of a client's key, as exports show it. None: sessions of this name under every key."""


class Erased(Message):
    """Live turns among `turns` became dropped(`erased`); what trained stays counted as trained."""

    turns: int
    sessions: int


# ---------------------------------------------------------------- gateway: pause


class Paused(Message):
    """POST /internal/paused → PausedAck. The operator's direct word; the Lease watch says the same.

    A hold: `epoch` and `lease_sec` > 0, counted on the gateway's monotonic clock from first sight of that epoch.
    Release: `lease_sec` 0, the `serving_version`, and the `canary` that some engines serve beside it. With
    `engines_changed` some engine was updated alone since: what was known of their versions is to be asked anew.
    """

    epoch: int = Field(ge=0)
    lease_sec: float = Field(ge=0)
    version: str | None = None
    serving_version: str | None = None
    canary: Canary | None = None
    engines_changed: bool = False


class PausedAck(Message):
    """Nothing admitted before this epoch is still unsent to an engine, and nothing more will be sent.

    While something is, a hold is answered 503 `unsent` instead.
    """

    epoch: int
    pod_uid: str
    process_start: float
    paused: bool


# ---------------------------------------------------------------- sync agent


class Prepare(Message):
    """POST /prepare → Prepared. Checks the manifest, warms the page cache; the engine keeps serving."""

    version: str


class Prepared(Message):
    version: str
    ready: bool
    error: str | None = None
    seconds: float = 0.0


class Transfer(Message):
    """Where an engine gets a version without reading the volume: the trainer's sender, for `engines` at once."""

    url: str
    engines: int = Field(ge=1)


class JoinTransfer(Message):
    """POST /transfers on `names.PORT_SENDER` → TransferPlan. An engine wants to take part in one sync's transfer.

    Answered once `engines` engines have asked, or the first has waited long enough for the others; 409 for one that
    comes later, 404 for a version the sender does not have. Refused engines read the volume.
    """

    epoch: int = Field(ge=0)
    version: str
    engine: str
    ranks: int = Field(ge=1)
    """Processes of the engine that join (tensorParallelSize)."""
    engines: int = Field(ge=1)
    device: Literal["cuda", "cpu"]


class TensorSpec(Message):
    name: str
    dtype: str
    shape: list[int]


class TransferPlan(Message):
    """The group to join, on the sender's host, and what will be broadcast in it, bucket by bucket."""

    group: str
    port: int
    backend: Literal["gloo", "nccl"]
    rank_offset: int
    world_size: int
    buckets: list[list[TensorSpec]]


class Sync(Message):
    """POST /sync → Synced. pause → update → verify → continue; always continues at the deadline or on error.

    With `transfer` the weights come from the trainer's sender, and from the volume if that fails in any way.

    `deadline_sec` is relative to arrival. 409 for an epoch lower than the highest seen, or while another sync runs.
    """

    epoch: int = Field(ge=0)
    version: str
    deadline_sec: float = Field(gt=0, le=3600)
    transfer: Transfer | None = None


class Synced(Message):
    epoch: int
    version: str
    """The version the engine serves now."""
    ok: bool
    error: str | None = None
    pause_sec: float = 0.0
    """Seconds between SGLang's pause and its continue."""
    update_sec: float = 0.0
    transferred: bool = False
    """The weights came from the sender, not from the volume."""
    staged: bool = False
    """The weights had been read ahead, into the engine's second set."""


class Retain(Message):
    """POST /retain → AgentState. LoRA adapters other than these and the agent's own version are no longer wanted.

    Each is unloaded once no request uses it. Forgotten with the next sync to another version.
    """

    versions: list[str]


class AgentState(Message):
    """GET /state. What the agent knows of its engine."""

    version: str | None
    """Version loaded, None while SGLang starts."""
    target: str | None
    ready: bool
    paused: bool
    highest_epoch: int
    phase: Literal["starting", "waiting_for_model", "loading", "serving", "syncing", "failed"]
    starting: str | None = None
    """Version SGLang loads while it starts, from its choice until `version` is known: its files may not be deleted.
    None otherwise, and from agents that do not say it."""
    sglang_version: str | None = None
    checksum: str | None = None
    """Digest over the engine's own weight checksums, from SGLang's /weights_checker."""
    adapters: list[str] = []
    """LoRA adapters (`lora.publish: adapter`) that are loaded, by version; `version` is the one it was told last."""
    error: str | None = None


# ---------------------------------------------------------------- judge: state for status


class JudgeState(Message):
    """GET /state on `names.PORT_JUDGE`: whether the judge endpoint answers, in its own words.

    `ok` turns false at once when the endpoint refuses the key, else after three failures in a row; it comes back with
    the first answer. While false the judge asks again by itself every few seconds.
    """

    ok: bool
    error: str | None = None
    """The endpoint's words or what happened to the request; the key never appears in it."""
    since: float
    """Unix seconds of the last change of `ok`."""
    counts: dict[str, int] = {}
    """Since the process started: scored, unjudged, requests, retries, timeouts, refused, failed, unparsed."""


# ---------------------------------------------------------------- trainer, environment: state for status and demo


class Update(Message):
    """One optimizer step, as the trainer reports it."""

    step: int
    version: str
    samples: int
    reward_mean: float
    loss: float
    lag_mean: float
    lag_max: int
    logprob_abs_diff: float
    """Masked mean |prox − rollout| over all samples (train_rollout_logprob_abs_diff)."""
    logprob_abs_diff_fresh: float | None
    """The same over samples of lag 0 only; None without one."""
    grad_norm: float
    seconds: float
    finished_at: float


class TrainerState(Message):
    """GET /state on `names.PORT_TRAINER`. `updates` holds the last 1000 optimizer steps, oldest first."""

    phase: Literal["starting", "waiting_for_model", "waiting", "training", "publishing", "failed"]
    step: int
    version: str
    trainer_epoch: int
    zero_advantage_batches: int = 0
    skipped_nan: int = 0
    updates: list[Update] = []
    error: str | None = None


class ClientReport(Message):
    """GET /report on `names.PORT_ENVIRONMENT`: what the simulated users saw, by their own clock and count."""

    sessions: int = 0
    turns_ok: int = 0
    """Requests answered 200 and read to their end."""
    refused: list[tuple[float, float, int, str]] = []
    """(sent at, answered at, HTTP status, error code) of the last 10,000 refusals; Unix seconds."""
    refused_total: dict[str, int] = {}
    """By `<status>:<code>`."""
    failed: int = 0
    """Requests that ended in neither an answer nor a refusal."""
    preferred: int = 0
    judged: int = 0
    """Answers the users reacted to, and how many of them they liked."""
    in_flight: int = 0
    stopped: bool = False
