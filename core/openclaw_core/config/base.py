"""The base of every config section: frozen, camelCase in the resource, unknown keys rejected."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class Section(BaseModel):
    """One section of `spec`. Field names are snake_case here and camelCase in the resource."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


OpenObject = Annotated[dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]
"""An object whose schema belongs to Kubernetes (pod template, resources): kept as it is."""


class SecretKeyRef(Section):
    """One key of a Secret in the training's namespace."""

    name: str = Field(min_length=1, max_length=253, description="Name of the Secret.")
    key: str = Field(min_length=1, max_length=253, description="Key inside the Secret.")


class SecretRef(Section):
    """A Secret in the training's namespace, all of it."""

    name: str = Field(min_length=1, max_length=253, description="Name of the Secret.")


class Resources(Section):
    """Requests and limits of the component's main container, as in a pod."""

    requests: dict[str, int | str] = Field(
        default={}, description="Least the container gets, e.g. {cpu: 1, memory: 2Gi}. Empty: none."
    )
    limits: dict[str, int | str] = Field(
        default={}, description="Most the container may use, e.g. {nvidia.com/gpu: 1}. Empty: none."
    )


class EnvVar(Section):
    """A plain environment variable; secrets go through the section's own SecretRef fields."""

    name: str = Field(min_length=1, max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="Name.")
    value: str = Field(default="", max_length=4096, description="Value; empty sets the variable to nothing.")
