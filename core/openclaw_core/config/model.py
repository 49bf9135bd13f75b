"""`spec.model`: which policy is served and trained."""

from pydantic import Field

from openclaw_core.config.base import SecretKeyRef, Section


class HuggingFace(Section):
    """A model repository of the Hugging Face hub."""

    repo: str = Field(min_length=3, max_length=200, description="Repository, e.g. Qwen/Qwen3-4B.")
    revision: str = Field(default="main", max_length=100, description="Branch, tag or commit.")
    token_secret_ref: SecretKeyRef | None = Field(
        default=None, description="Token for a gated repository. None: anonymous."
    )


class ModelSource(Section):
    """Where a model comes from: exactly one of `path` and `huggingFace`."""

    path: str | None = Field(
        default=None,
        min_length=1,
        max_length=512,
        description="Directory of the model: absolute inside the image, or relative to the weights volume.",
    )
    hugging_face: HuggingFace | None = Field(default=None, description="Model on the Hugging Face hub.")

    @property
    def is_one(self) -> bool:
        return (self.path is None) != (self.hugging_face is None)


class Model(ModelSource):
    """The base model. Its identity cannot change once the training exists."""

    served_name: str = Field(
        default="policy",
        min_length=1,
        max_length=100,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$",
        description="Fixed model id shown by /v1/models and echoed in every answer.",
    )
