"""`spec.environmentHosting`: who talks to the policy."""

from typing import Annotated, Literal

from pydantic import Field

from openclaw_core.config.base import EnvVar, OpenObject, Resources, Section


class Egress(Section):
    """Where environment pods may connect to, beside the gateway and DNS."""

    cidr: str = Field(
        min_length=3,
        max_length=64,
        pattern=r"^[0-9a-fA-F:.]+/[0-9]{1,3}$",
        description="Addresses, e.g. 203.0.113.0/24; 0.0.0.0/0: any.",
    )
    ports: list[Annotated[int, Field(ge=1, le=65535)]] = Field(
        default=[], max_length=32, description="TCP ports. Empty: all."
    )


class EnvironmentHosting(Section):
    """Simulated users or the admin's own container; off by default, since live users come by themselves."""

    enabled: bool = Field(default=False, description="Whether the operator runs an environment.")
    kind: Literal["simulatedUser", "toolCall", "terminal", "custom"] = Field(
        default="simulatedUser", description="Which driver runs. custom needs image."
    )
    replicas: int = Field(default=1, ge=0, le=64, description="Environment pods. 0: none.")
    image: str | None = Field(default=None, max_length=512, description="Image. None: the operator's own.")
    command: list[str] = Field(default=[], max_length=64, description="Command. Empty: the image's own.")
    env: list[EnvVar] = Field(default=[], max_length=64, description="Environment variables, no secrets.")
    egress: list[Egress] = Field(
        default=[],
        max_length=32,
        description="Where environment pods may connect to beside the gateway and DNS. Empty: nowhere else.",
    )
    resources: Resources = Field(default=Resources(), description="Requests and limits.")
    pod_template: OpenObject = Field(default={}, description="Strategic merge into the pod template.")
