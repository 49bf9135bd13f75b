"""`spec.rewardJudging`, `spec.api` and `spec.judge`: how a turn gets its reward, and from whom."""

from typing import Annotated, Literal

from pydantic import Field

from openclaw_core.config.base import OpenObject, Resources, SecretKeyRef, Section
from openclaw_core.config.model import ModelSource


class Deployed(Section):
    """The judge model, served in the cluster by SGLang pods of this training. Rolls nothing but itself."""

    model: ModelSource = Field(description="Which model judges. Judges ask for it as spec.judge.model.")
    device: Literal["cuda", "cpu"] = Field(default="cuda", description="Device it runs on.")
    replicas: int = Field(default=1, ge=0, le=16, description="Pods. 0: nobody answers the judges.")
    tensor_parallel_size: int = Field(default=1, ge=1, le=64, description="GPUs per pod.")
    args: list[Annotated[str, Field(max_length=512)]] = Field(
        default=[], max_length=64, description="More arguments of SGLang's server, e.g. --context-length=8192."
    )
    resources: Resources = Field(default=Resources(), description="Requests and limits.")
    pod_template: OpenObject = Field(default={}, description="Strategic merge into the pod template.")


class RewardJudging(Section):
    """The judge workers."""

    mode: Literal["async", "sync"] = Field(
        default="async",
        description="async: turns are judged side by side. sync: one at a time within a session, in order.",
    )
    judge_concurrency: int = Field(
        default=4, ge=1, le=1024, description="Open requests to the judge endpoint, over all workers."
    )
    judge_timeout_sec: int = Field(
        default=30, ge=1, le=3600, description="Seconds for one request; a turn gets at most twice that."
    )
    fire_on_turn_end: bool = Field(
        default=True, description="true: judge when the next state arrives. false: at the session's end."
    )
    votes: int = Field(
        default=1, ge=1, le=15, description="Judgements per turn, odd. More than 1 needs temperature > 0."
    )
    replicas: int = Field(default=1, ge=0, le=16, description="Judge pods. 0: nothing is judged.")
    deployed: Deployed | None = Field(
        default=None, description="A judge model served in the cluster. None: judges ask spec.api.baseUrl."
    )
    resources: Resources = Field(default=Resources(), description="Requests and limits.")
    pod_template: OpenObject = Field(default={}, description="Strategic merge into the pod template.")


class Api(Section):
    """The judge endpoint: an OpenAI-style API."""

    base_url: str | None = Field(
        default=None,
        min_length=8,
        max_length=512,
        pattern=r"^https?://.+",
        description="Base URL up to and including /v1, e.g. https://api.example.com/v1. None: the model of "
        "spec.rewardJudging.deployed.",
    )
    api_key_secret_ref: SecretKeyRef | None = Field(
        default=None, description="Secret with the key. None: the endpoint asks for none."
    )
    api_key_env: str = Field(
        default="OPENCLAW_JUDGE_API_KEY",
        max_length=128,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="Environment variable the key is mounted under in the judge pod.",
    )
    timeout_sec: int = Field(
        default=60,
        ge=1,
        le=3600,
        description="Longest wait of a blocked submission (dropPolicy block), seconds.",
    )


class Judge(Section):
    """The judge model's request parameters."""

    model: str = Field(min_length=1, max_length=200, description="Model id sent to the endpoint.")
    temperature: float = Field(default=0.0, ge=0, le=2, description="Sampling temperature. 0: greedy.")
    max_tokens: int = Field(default=512, ge=1, le=32768, description="Longest judgement, in tokens.")
