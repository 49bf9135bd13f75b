"""Which component needs which key of which Secret, and under which environment variable it gets it.

Pure. The operator checks these references; the pods receive the values by `secretKeyRef` or as mounted files, never
through the operator.
"""

from dataclasses import dataclass

from openclaw_core import names
from openclaw_core.config.base import SecretKeyRef
from openclaw_core.config.spec import TrainingSpec

_RESERVED = frozenset({"HOME", "PATH", "PYTHONPATH", "HOSTNAME"})
_RESERVED_PREFIXES = ("KUBERNETES_", "LD_")
_OURS = frozenset(
    {
        names.ENV_CONFIG,
        names.ENV_POD_NAME,
        names.ENV_POD_UID,
        names.ENV_GATEWAY_TOKEN,
        names.ENV_AGENT_TOKEN,
        names.ENV_GATEWAY_API_KEY,
    }
)


ALL_ENTRIES = ""
"""Key of a reference to a whole Secret."""


@dataclass(frozen=True)
class SecretNeed:
    """`component` gets key `ref` as environment variable `env`; `field` is the path in the spec that says so.

    With ALL_ENTRIES as key the Secret is mounted instead, and read again by the process when it changes: `env` is
    empty, and no pod is rolled for it.
    """

    component: str
    env: str
    ref: SecretKeyRef
    field: str


def secret_needs(spec: TrainingSpec) -> tuple[SecretNeed, ...]:
    """Every Secret key the training's components need, in a fixed order."""
    needs: list[SecretNeed] = []

    def need(ref: SecretKeyRef | None, env: str, field: str, *components: str) -> None:
        if ref is not None:
            needs.extend(SecretNeed(component, env, ref, field) for component in components)

    gateway_users = (names.GATEWAY, *((names.ENVIRONMENT,) if spec.environment_hosting.enabled else ()))
    need(
        spec.policy_serving.gateway.api_key_secret_ref,
        names.ENV_GATEWAY_API_KEY,
        "spec.policyServing.gateway.apiKeySecretRef",
        *gateway_users,
    )
    if (keys := spec.policy_serving.gateway.api_keys_secret_ref) is not None:
        field = "spec.policyServing.gateway.apiKeysSecretRef"
        needs.append(
            SecretNeed(names.GATEWAY, "", SecretKeyRef.model_construct(name=keys.name, key=ALL_ENTRIES), field)
        )
    need(spec.api.api_key_secret_ref, spec.api.api_key_env, "spec.api.apiKeySecretRef", names.JUDGE)
    if spec.model.hugging_face is not None:
        token = spec.model.hugging_face.token_secret_ref
        need(token, names.ENV_HF_TOKEN, "spec.model.huggingFace.tokenSecretRef", names.ENGINE, names.TRAINER)
    deployed = spec.reward_judging.deployed
    if deployed is not None and deployed.model.hugging_face is not None:
        field = "spec.rewardJudging.deployed.model.huggingFace.tokenSecretRef"
        need(deployed.model.hugging_face.token_secret_ref, names.ENV_HF_TOKEN, field, names.JUDGE_MODEL)
    if spec.queue.postgres is not None and spec.queue.store == "postgres":
        need(
            spec.queue.postgres.url_secret_ref,
            names.ENV_POSTGRES_URL,
            "spec.queue.postgres.urlSecretRef",
            names.GATEWAY,
        )
    if spec.logging.wandb is not None:
        wandb = spec.logging.wandb.api_key_secret_ref
        need(wandb, names.ENV_WANDB_API_KEY, "spec.logging.wandb.apiKeySecretRef", names.TRAINER)
    return tuple(needs)


def wrong_api_key_env(spec: TrainingSpec) -> str | None:
    """Why `spec.api.apiKeyEnv` cannot be used, or None: it would overwrite a variable the pod lives on."""
    name = spec.api.api_key_env
    if name in _OURS or name in _RESERVED or name.startswith(_RESERVED_PREFIXES):
        return (
            f"spec.api.apiKeyEnv {name!r} is a variable the judge pod needs itself; "
            "choose another, e.g. OPENCLAW_JUDGE_API_KEY"
        )
    return None
