import base64

import pytest

from openclaw_core.config.base import SecretKeyRef
from openclaw_core.kube import KubeError
from openclaw_operator.needs import SecretNeed, secret_needs, wrong_api_key_env
from openclaw_operator.reasons import Reason
from openclaw_operator.secrets import Secrets
from tests.unit.operator.memory_kube import MemoryKube
from tests.unit.operator.trainings import training

PATH = "/api/v1/namespaces/lab/secrets/judge-key"
NEED = SecretNeed("judge", "KEY", SecretKeyRef(name="judge-key", key="key"), "spec.api.apiKeySecretRef")


def secret(**values: str) -> dict[str, object]:
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    return {"metadata": {"name": "judge-key", "namespace": "lab"}, "data": data}


@pytest.mark.parametrize(
    ("found", "reason", "words"),
    [
        (
            None,
            Reason.SECRET_MISSING,
            "create it, or name another: kubectl -n lab create secret generic judge-key --from-literal=key=…",
        ),
        (secret(other="x"), Reason.KEY_MISSING, "has no key 'key'"),
        (secret(key=""), Reason.KEY_EMPTY, "is empty"),
        (secret(key="  \n"), Reason.KEY_EMPTY, "is empty"),
        (secret(key="changeme"), Reason.KEY_PLACEHOLDER, "holds a placeholder"),
        (secret(key="<your key>"), Reason.KEY_PLACEHOLDER, "holds a placeholder"),
        (secret(key="sk-your-key-here"), Reason.KEY_PLACEHOLDER, "holds a placeholder"),
    ],
)
async def test_secret_fault_names_field_key_and_fix(
    found: dict[str, object] | None, reason: Reason, words: str
) -> None:
    kube = MemoryKube()
    if found is not None:
        kube.put(PATH, found)
    resolution = await Secrets(kube).resolve("lab", [NEED])
    (problem,) = resolution.problems
    assert problem.reason == reason
    assert problem.message.startswith("spec.api.apiKeySecretRef: ")
    assert words in problem.message
    assert resolution.blocked() == {"judge"}


async def test_secret_that_is_there_blocks_nothing() -> None:
    kube = MemoryKube()
    kube.put(PATH, secret(key="sk-real-0123"))
    resolution = await Secrets(kube).resolve("lab", [NEED])
    assert (resolution.problems, set(resolution.hashes)) == ((), {"judge"})


async def test_secret_made_later_resolves_at_the_next_look() -> None:
    kube = MemoryKube()
    secrets = Secrets(kube)
    assert (await secrets.resolve("lab", [NEED])).problems
    kube.put(PATH, secret(key="real"))
    assert not (await secrets.resolve("lab", [NEED])).problems


async def test_rotated_secret_changes_the_hash_and_an_unchanged_one_is_read_by_metadata_only() -> None:
    kube = MemoryKube()
    kube.put(PATH, secret(key="one"))
    secrets = Secrets(kube)
    first = await secrets.resolve("lab", [NEED])
    reads = len(kube.requests)
    assert (await secrets.resolve("lab", [NEED])) == first
    assert len(kube.requests) == reads + 1
    kube.put(PATH, secret(key="two"))
    assert (await secrets.resolve("lab", [NEED])).hashes != first.hashes


async def test_rotated_secret_changes_the_hash_of_its_users_and_of_nobody_else() -> None:
    kube = MemoryKube()
    kube.put(PATH, secret(key="one"))
    kube.put(PATH.replace("judge-key", "users"), secret(key="one"))
    needs = [NEED, SecretNeed("gateway", "KEY", SecretKeyRef(name="users", key="key"), "spec.users")]
    secrets = Secrets(kube)
    first = (await secrets.resolve("lab", needs)).hashes
    kube.put(PATH, secret(key="two"))
    second = (await secrets.resolve("lab", needs)).hashes
    assert {component for component in first if first[component] != second[component]} == {"judge"}


async def test_forbidden_secret_is_a_condition_not_a_crash() -> None:
    kube = MemoryKube()
    kube.fail[PATH] = KubeError(403, "Forbidden", "no")
    (problem,) = (await Secrets(kube).resolve("lab", [NEED])).problems
    assert problem.reason == Reason.SECRET_FORBIDDEN


async def test_secret_values_stay_out_of_memory_and_messages() -> None:
    kube = MemoryKube()
    kube.put(PATH, secret(key="sk-real-0123"))
    secrets = Secrets(kube)
    resolution = await secrets.resolve("lab", [NEED])
    assert "sk-real" not in repr(vars(secrets)["_seen"]) + repr(resolution)


def test_needs_name_every_reference_and_its_users() -> None:
    spec = training(
        model={"huggingFace": {"repo": "a/b", "tokenSecretRef": {"name": "hub", "key": "t"}}},
        policyServing={"gateway": {"apiKeySecretRef": {"name": "users", "key": "k"}}},
        environmentHosting={"enabled": True},
        logging={"wandb": {"apiKeySecretRef": {"name": "w", "key": "k"}}},
        queue={"store": "postgres", "postgres": {"urlSecretRef": {"name": "db", "key": "url"}}},
    ).spec
    found = [(need.component, need.env, need.ref.name) for need in secret_needs(spec)]
    assert found == [
        ("gateway", "OPENCLAW_API_KEY", "users"),
        ("environment", "OPENCLAW_API_KEY", "users"),
        ("judge", "OPENCLAW_JUDGE_API_KEY", "judge-key"),
        ("engine", "HF_TOKEN", "hub"),
        ("trainer", "HF_TOKEN", "hub"),
        ("gateway", "OPENCLAW_POSTGRES_URL", "db"),
        ("trainer", "WANDB_API_KEY", "w"),
    ]


@pytest.mark.parametrize("name", ["PATH", "HOME", "OPENCLAW_GATEWAY_TOKEN", "KUBERNETES_SERVICE_HOST", "LD_PRELOAD"])
def test_api_key_env_that_the_pod_needs_itself_is_refused(name: str) -> None:
    message = wrong_api_key_env(training(api={"baseUrl": "http://judge.test/v1", "apiKeyEnv": name}).spec)
    assert message is not None
    assert f"spec.api.apiKeyEnv '{name}'" in message


WHOLE = SecretNeed("gateway", "", SecretKeyRef.model_construct(name="judge-key", key=""), "spec.keys")


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, Reason.KEY_MISSING),
        ({"alice": "", "bob": "changeme"}, Reason.KEY_EMPTY),
        ({"alice": "changeme"}, Reason.KEY_PLACEHOLDER),
        ({"alice": "real-0123", "bob": "changeme"}, None),
    ],
)
async def test_whole_secret_needs_one_usable_entry(values: dict[str, str], reason: Reason | None) -> None:
    kube = MemoryKube()
    kube.put(PATH, secret(**values))
    resolution = await Secrets(kube).resolve("lab", [WHOLE])
    assert [problem.reason for problem in resolution.problems] == ([reason] if reason else [])


async def test_whole_secret_rolls_nobody_when_it_changes() -> None:
    kube = MemoryKube()
    kube.put(PATH, secret(alice="real-0123"))
    assert (await Secrets(kube).resolve("lab", [WHOLE])).hashes == {}


def test_clients_keys_are_needed_whole_and_by_the_gateway_alone() -> None:
    gateway = {"device": "cpu", "gateway": {"apiKeysSecretRef": {"name": "clients"}}}
    needs = [need for need in secret_needs(training(policyServing=gateway).spec) if "apiKeys" in need.field]
    assert [(need.component, need.env, need.ref.name, need.ref.key) for need in needs] == [
        ("gateway", "", "clients", "")
    ]
