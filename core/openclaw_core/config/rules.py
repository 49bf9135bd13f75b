"""Rules that span fields of `spec`, each twice: as CEL for admission, as Python for offline validation.

A rule's sentence names the field, its value and the fix. The two forms are kept side by side so that neither is
changed alone; a test holds every rule against both.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # spec imports this module
    from openclaw_core.config.spec import TrainingSpec

GPU = "nvidia.com/gpu"
RESERVED_PORT = 30001
"""The gateway's internal port (names.PORT_GATEWAY_INTERNAL)."""
_RESERVED_ENV = ("HOME", "PATH", "PYTHONPATH", "HOSTNAME")


class CelRule(NamedTuple):
    """One x-kubernetes-validations entry. `message_expression` is CEL that shows the values."""

    rule: str
    message: str
    message_expression: str | None = None


class Rule(NamedTuple):
    """`holds` is the same condition as `cel.rule`."""

    cel: CelRule
    holds: "Callable[[TrainingSpec], bool]"


_BACKLOG = "(self.policyTraining.maxHeadOffPolicyness + 1) * self.policyTraining.rolloutBatchSize"


def _limit(section: str, name: str = GPU) -> str:
    """CEL: the limit is given."""
    return f"(has({section}.resources.limits) && '{name}' in {section}.resources.limits)"


def _gpus(section: str) -> str:
    return f"int({section}.resources.limits['{GPU}'])"


def _values(sentence: str, *values: str) -> str:
    """CEL that formats `sentence` with `values`."""
    return f"'{sentence}'.format([{', '.join(values)}])"


_SERVING, _TRAINING = "self.policyServing", "self.policyTraining"
_TARGETS = f"{_TRAINING}.lora.targets"
_DEPLOYED = "self.rewardJudging.deployed"


def _enough_gpus(
    path: str,
    count: str,
    why: str,
    section: "Callable[[TrainingSpec], Any]",
    needed: Callable[[Any], int],
    *,
    optional: bool = False,
) -> Rule:
    """A pod on `cuda` whose GPUs are limited has as many as its section's `count` says. `optional`: may be absent."""
    cel = f"self.{path}"
    absent = f"!has({cel}) || " if optional else ""

    def holds(spec: "TrainingSpec") -> bool:
        found = section(spec)
        if found is None or found.device != "cuda" or GPU not in found.resources.limits:
            return True
        return int(found.resources.limits[GPU]) >= needed(found)

    return Rule(
        CelRule(
            f"{absent}{cel}.device != 'cuda' || !{_limit(cel)} || {_gpus(cel)} >= {cel}.{count}",
            f"spec.{path}.resources.limits['{GPU}'] must be at least {count}",
            _values(
                f'spec.{path}.resources.limits["{GPU}"] is %d but {count} is %d: {why}', _gpus(cel), f"{cel}.{count}"
            ),
        ),
        holds,
    )


def _joinable(targets: Sequence[str]) -> bool:
    """SGLang joins q, k and v, and gate and up; it fills in a missing k or up, and fails on any other gap."""
    attention = {"q_proj", "k_proj", "v_proj"} & set(targets)
    return (not attention or {"q_proj", "v_proj"} <= attention) and ("up_proj" not in targets or "gate_proj" in targets)


RULES: tuple[Rule, ...] = (
    Rule(
        CelRule(
            "has(self.model.path) != has(self.model.huggingFace)",
            "spec.model: set exactly one of path and huggingFace",
            "has(self.model.path) ? "
            + _values(
                'spec.model: set exactly one of path and huggingFace; path is "%s" and huggingFace.repo is "%s": '
                "remove one",
                "self.model.path",
                "self.model.huggingFace.repo",
            )
            + " : 'spec.model: set exactly one of path and huggingFace; neither is set: add one'",
        ),
        lambda spec: spec.model.is_one,
    ),
    Rule(
        CelRule(
            f"{_BACKLOG} <= self.queue.maxSize",
            "spec.queue.maxSize must hold (policyTraining.maxHeadOffPolicyness + 1) * rolloutBatchSize samples",
            _values(
                "spec.queue.maxSize is %d but must be at least %d = (policyTraining.maxHeadOffPolicyness + 1) * "
                "rolloutBatchSize: raise it, or lower one of the two",
                "self.queue.maxSize",
                _BACKLOG,
            ),
        ),
        lambda spec: (
            (spec.policy_training.max_head_off_policyness + 1) * spec.policy_training.rollout_batch_size
            <= spec.queue.max_size
        ),
    ),
    Rule(
        CelRule(
            "self.policyTraining.minBatch <= self.policyTraining.rolloutBatchSize",
            "spec.policyTraining.minBatch must be at most rolloutBatchSize",
            _values(
                "spec.policyTraining.minBatch must be at most rolloutBatchSize (is %d, rolloutBatchSize is %d): "
                "lower it, or raise rolloutBatchSize",
                "self.policyTraining.minBatch",
                "self.policyTraining.rolloutBatchSize",
            ),
        ),
        lambda spec: spec.policy_training.min_batch <= spec.policy_training.rollout_batch_size,
    ),
    Rule(
        CelRule(
            "self.policyTraining.staleFilterSteps >= self.policyTraining.maxHeadOffPolicyness",
            "spec.policyTraining.staleFilterSteps must be at least maxHeadOffPolicyness",
            _values(
                "spec.policyTraining.staleFilterSteps must be at least maxHeadOffPolicyness (is %d, "
                "maxHeadOffPolicyness is %d): raise it",
                "self.policyTraining.staleFilterSteps",
                "self.policyTraining.maxHeadOffPolicyness",
            ),
        ),
        lambda spec: spec.policy_training.stale_filter_steps >= spec.policy_training.max_head_off_policyness,
    ),
    Rule(
        CelRule(
            "self.policyServing.gateway.replicas <= 1 || self.queue.store == 'postgres'",
            "spec.policyServing.gateway.replicas above 1 needs spec.queue.store postgres",
            _values(
                'spec.policyServing.gateway.replicas is %d, but above 1 needs spec.queue.store postgres (is "%s"): '
                "one SQLite file has one writer",
                "self.policyServing.gateway.replicas",
                "self.queue.store",
            ),
        ),
        lambda spec: spec.policy_serving.gateway.replicas <= 1 or spec.queue.store == "postgres",
    ),
    Rule(
        CelRule(
            "self.queue.store != 'postgres' || has(self.queue.postgres)",
            "spec.queue.store postgres needs spec.queue.postgres.urlSecretRef: name the Secret with the database URL",
        ),
        lambda spec: spec.queue.store != "postgres" or spec.queue.postgres is not None,
    ),
    Rule(
        CelRule(
            "self.rewardJudging.votes % 2 == 1",
            "spec.rewardJudging.votes must be odd, so that a majority exists",
            _values(
                "spec.rewardJudging.votes must be odd, so that a majority exists (is %d): take %d",
                "self.rewardJudging.votes",
                "self.rewardJudging.votes + 1",
            ),
        ),
        lambda spec: spec.reward_judging.votes % 2 == 1,
    ),
    Rule(
        CelRule(
            "self.rewardJudging.votes == 1 || double(self.judge.temperature) > 0.0",
            "spec.rewardJudging.votes above 1 needs spec.judge.temperature above 0: greedy votes are all the same",
        ),
        lambda spec: spec.reward_judging.votes == 1 or spec.judge.temperature > 0,
    ),
    Rule(
        CelRule(
            f"has(self.api.baseUrl) != has({_DEPLOYED})",
            "spec.api.baseUrl: name the judge endpoint, or set spec.rewardJudging.deployed; not both",
            "has(self.api.baseUrl) ? "
            + _values(
                'spec.api.baseUrl is "%s", but spec.rewardJudging.deployed serves the judge model here: remove one',
                "self.api.baseUrl",
            )
            + " : 'spec.api.baseUrl: name the judge endpoint, or set spec.rewardJudging.deployed'",
        ),
        lambda spec: (spec.api.base_url is None) != (spec.reward_judging.deployed is None),
    ),
    Rule(
        CelRule(
            f"!has({_DEPLOYED}) || has({_DEPLOYED}.model.path) != has({_DEPLOYED}.model.huggingFace)",
            "spec.rewardJudging.deployed.model: set exactly one of path and huggingFace",
        ),
        lambda spec: spec.reward_judging.deployed is None or spec.reward_judging.deployed.model.is_one,
    ),
    _enough_gpus(
        "rewardJudging.deployed",
        "tensorParallelSize",
        "a pod needs one GPU for each",
        lambda spec: spec.reward_judging.deployed,
        lambda deployed: deployed.tensor_parallel_size,
        optional=True,
    ),
    Rule(
        CelRule(
            f"{_TRAINING}.engine != 'megatron' || {_TRAINING}.device != 'cuda' || {_limit(_TRAINING)}",
            f"spec.policyTraining.engine megatron on cuda needs spec.policyTraining.resources.limits['{GPU}']",
        ),
        lambda spec: (
            spec.policy_training.engine != "megatron"
            or spec.policy_training.device != "cuda"
            or GPU in spec.policy_training.resources.limits
        ),
    ),
    _enough_gpus(
        "policyServing",
        "tensorParallelSize",
        "an engine needs one GPU for each",
        lambda spec: spec.policy_serving,
        lambda serving: serving.tensor_parallel_size,
    ),
    _enough_gpus(
        "policyTraining",
        "procsPerNode",
        "a trainer pod needs one GPU for each process",
        lambda spec: spec.policy_training,
        lambda learning: learning.procs_per_node,
    ),
    Rule(
        CelRule(
            "!(self.policyTraining.method in ['opd', 'topkDistill', 'combine']) || self.rewardJudging.replicas > 0",
            "spec.policyTraining.method opd, topkDistill and combine need spec.rewardJudging.replicas above 0",
            _values(
                'spec.policyTraining.method "%s" learns from the hints of the judge, but spec.rewardJudging.replicas '
                "is %d: set it to 1, or take method binaryRl",
                "self.policyTraining.method",
                "self.rewardJudging.replicas",
            ),
        ),
        lambda spec: spec.policy_training.method == "binaryRl" or spec.reward_judging.replicas > 0,
    ),
    Rule(
        CelRule(
            f"!has({_TRAINING}.lora) || {_TRAINING}.lora.publish != 'adapter' || "
            f"((!{_TARGETS}.exists(t, t in ['q_proj', 'k_proj', 'v_proj']) || "
            f"('q_proj' in {_TARGETS} && 'v_proj' in {_TARGETS})) && "
            f"(!('up_proj' in {_TARGETS}) || 'gate_proj' in {_TARGETS}))",
            "spec.policyTraining.lora.targets with publish adapter must hold q_proj and v_proj together, and gate_proj "
            "with up_proj, which engines join: add the missing one, or set publish to merged",
        ),
        lambda spec: spec.policy_training.adapter is None or _joinable(spec.policy_training.adapter.targets),
    ),
    Rule(
        CelRule(
            f"!has({_SERVING}.rollout) || {_SERVING}.replicas == 0 || "
            f"{_SERVING}.rollout.canaryReplicas < {_SERVING}.replicas",
            "spec.policyServing.rollout.canaryReplicas must be below spec.policyServing.replicas, so that the stable "
            "version is served too",
            _values(
                "spec.policyServing.rollout.canaryReplicas is %d but must be below spec.policyServing.replicas (%d), "
                "so that the stable version is served too: lower it, raise replicas, or remove rollout",
                f"{_SERVING}.rollout.canaryReplicas",
                f"{_SERVING}.replicas",
            ),
        ),
        lambda spec: (
            spec.policy_serving.rollout is None
            or spec.policy_serving.replicas == 0
            or spec.policy_serving.rollout.canary_replicas < spec.policy_serving.replicas
        ),
    ),
    Rule(
        CelRule(
            f"!has({_SERVING}.rollout) || self.rewardJudging.replicas > 0",
            "spec.policyServing.rollout compares judged turns and needs spec.rewardJudging.replicas above 0",
            _values(
                "spec.policyServing.rollout compares judged turns, but spec.rewardJudging.replicas is %d: set it to 1, "
                "or remove rollout",
                "self.rewardJudging.replicas",
            ),
        ),
        lambda spec: spec.policy_serving.rollout is None or spec.reward_judging.replicas > 0,
    ),
    Rule(
        CelRule(
            "self.environmentHosting.kind != 'custom' || has(self.environmentHosting.image)",
            "spec.environmentHosting.kind custom needs spec.environmentHosting.image: name your container",
        ),
        lambda spec: spec.environment_hosting.kind != "custom" or spec.environment_hosting.image is not None,
    ),
    Rule(
        CelRule(
            "!self.environmentHosting.enabled || !has(self.policyServing.gateway.apiKeysSecretRef) || "
            "has(self.policyServing.gateway.apiKeySecretRef)",
            "spec.policyServing.gateway.apiKeysSecretRef with spec.environmentHosting needs apiKeySecretRef too: the "
            "key the environment sends",
        ),
        lambda spec: (
            not spec.environment_hosting.enabled
            or spec.policy_serving.gateway.api_keys_secret_ref is None
            or spec.policy_serving.gateway.api_key_secret_ref is not None
        ),
    ),
    Rule(
        CelRule(
            f"self.policyServing.port != {RESERVED_PORT}",
            f"spec.policyServing.port {RESERVED_PORT} is the gateway's internal port: take another, e.g. 30000",
        ),
        lambda spec: spec.policy_serving.port != RESERVED_PORT,
    ),
    *(
        Rule(
            CelRule(
                f"!has(self.storage.{volume}.existingClaim) || !has(self.storage.{volume}.storageClassName)",
                f"spec.storage.{volume}: storageClassName has no effect beside existingClaim",
                _values(
                    f'spec.storage.{volume}.storageClassName "%s" has no effect beside existingClaim "%s": remove one',
                    f"self.storage.{volume}.storageClassName",
                    f"self.storage.{volume}.existingClaim",
                ),
            ),
            lambda spec, volume=volume: (  # type: ignore[misc]  # the loop's value, bound
                getattr(spec.storage, volume).existing_claim is None
                or getattr(spec.storage, volume).storage_class_name is None
            ),
        )
        for volume in ("weights", "experience")
    ),
)

CEL_RULES: tuple[CelRule, ...] = tuple(rule.cel for rule in RULES)


def broken(spec: "TrainingSpec") -> list[str]:
    """Sentences of the rules that do not hold."""
    return [rule.cel.message for rule in RULES if not rule.holds(spec)]
