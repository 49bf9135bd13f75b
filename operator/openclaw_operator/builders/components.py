"""The workloads of a training, each as what is particular to it."""

from collections.abc import Callable
from typing import Any

from openclaw_core import names
from openclaw_core.config import components as configs
from openclaw_operator.builders import ranks
from openclaw_operator.builders.workload import Context, Workload, shared_memory, token_env

Object = dict[str, Any]


def engine(context: Context) -> Workload:
    """SGLang and its sync agent. Readiness is the agent's: a pause does not flap the pod."""
    training = context.training
    serving = training.spec.policy_serving
    shm, shm_mount = shared_memory()
    return Workload(
        component=names.ENGINE,
        replicas=serving.replicas,
        config=configs.engine_config(training.name, training.namespace, training.spec),
        resources=serving.resources,
        pod_template=serving.pod_template,
        port=names.PORT_AGENT,
        startup_sec=3600,
        ports={"sglang": names.PORT_SGLANG, "agent": names.PORT_AGENT},
        env=[token_env(training.name, names.ENV_AGENT_TOKEN, names.SECRET_KEY_AGENT)],
        volumes=[
            _weights_volume(context),
            {"name": "target", "configMap": {"name": names.target_config_map(training.name), "optional": True}},
            shm,
        ],
        mounts=[
            {"name": "weights", "mountPath": names.WEIGHTS_DIR, "readOnly": True},
            {"name": "target", "mountPath": names.TARGET_FILE.rsplit("/", 1)[0], "readOnly": True},
            shm_mount,
        ],
        # Running turns get 60 s to end, SGLang 20 s to stop; see the engine's own drain.
        grace_sec=90,
    )


def gateway(context: Context) -> Workload:
    """Endpoint and experience store. One SQLite file has one writer, so that pod is replaced, not doubled."""
    training = context.training
    settings, serving = training.spec.policy_serving.gateway, training.spec.policy_serving
    sqlite = training.spec.queue.store == "sqlite"
    volumes: list[Object] = [_experience_volume(context)] if sqlite else []
    mounts: list[Object] = [{"name": "experience", "mountPath": names.EXPERIENCE_DIR}] if sqlite else []
    if settings.api_keys_secret_ref is not None:
        volumes.append({"name": "client-keys", "secret": {"secretName": settings.api_keys_secret_ref.name}})
        mounts.append({"name": "client-keys", "mountPath": names.CLIENT_KEYS_DIR, "readOnly": True})
    return Workload(
        component=names.GATEWAY,
        replicas=settings.replicas,
        config=configs.gateway_config(training.name, training.namespace, training.spec),
        resources=settings.resources,
        pod_template=settings.pod_template,
        port=serving.port,
        startup_sec=300,
        ports={"http": serving.port, "internal": names.PORT_GATEWAY_INTERNAL},
        env=[
            token_env(training.name, names.ENV_GATEWAY_TOKEN, names.SECRET_KEY_GATEWAY),
        ],
        volumes=volumes,
        mounts=mounts,
        recreate=sqlite,
        surge=not sqlite,
        api_token=True,
        grace_sec=60,
        # One of several: Services forget it before it stops taking connections.
        settle_sec=0 if sqlite else 3,
    )


def judge(context: Context) -> Workload:
    """Judge workers: outbound only, and the one place the judge endpoint's key goes to."""
    training = context.training
    judging = training.spec.reward_judging
    return Workload(
        component=names.JUDGE,
        replicas=judging.replicas,
        config=configs.judge_config(training.name, training.namespace, training.spec),
        resources=judging.resources,
        pod_template=judging.pod_template,
        port=names.PORT_JUDGE,
        startup_sec=120,
        ports={"http": names.PORT_JUDGE},
        env=[token_env(training.name, names.ENV_GATEWAY_TOKEN, names.SECRET_KEY_GATEWAY)],
    )


def judge_model(context: Context) -> Workload:
    """The judge model under SGLang alone: nothing changes its weights."""
    training = context.training
    deployed, shm = training.spec.reward_judging.deployed, shared_memory()
    config = configs.judge_model_config(training.name, training.namespace, training.spec)
    assert deployed is not None  # else the configuration was refused
    on_volume = config.model.path is not None and not config.model.path.startswith("/")
    mount = {"name": "weights", "mountPath": names.WEIGHTS_DIR, "readOnly": True}
    return Workload(
        component=names.JUDGE_MODEL,
        replicas=deployed.replicas,
        config=config,
        resources=deployed.resources,
        pod_template=deployed.pod_template,
        port=names.PORT_SGLANG,
        paths=("/health", "/health"),
        startup_sec=3600,
        ports={"http": names.PORT_SGLANG},
        command=("python3", "-m", "openclaw_engine.judge_model"),
        volumes=[*([_weights_volume(context)] if on_volume else []), shm[0]],
        mounts=[*([mount] if on_volume else []), shm[1]],
    )


def trainer(context: Context) -> Workload:
    """The optimizer. Two of them would publish against each other, so it is replaced, not doubled."""
    training = context.training
    learning = training.spec.policy_training
    shm, shm_mount = shared_memory()
    return Workload(
        component=names.TRAINER,
        replicas=learning.nodes,
        config=configs.trainer_config(training.name, training.namespace, training.spec),
        resources=learning.resources,
        pod_template=learning.pod_template,
        port=names.PORT_TRAINER,
        startup_sec=3600,
        ports={"http": names.PORT_TRAINER},
        env=[
            token_env(training.name, names.ENV_GATEWAY_TOKEN, names.SECRET_KEY_GATEWAY),
            *ranks.environment(context),
        ],
        volumes=[_weights_volume(context), shm],
        mounts=[{"name": "weights", "mountPath": names.WEIGHTS_DIR}, shm_mount],
        recreate=True,
        api_token=True,
        grace_sec=60,
    )


def environment(context: Context) -> Workload:
    """Simulated users, or the admin's own container (then without our probes)."""
    training = context.training
    hosting = training.spec.environment_hosting
    config = configs.environment_config(training.name, training.namespace, training.spec)
    ours = hosting.kind != "custom"
    return Workload(
        component=names.ENVIRONMENT,
        replicas=hosting.replicas,
        config=config,
        resources=hosting.resources,
        pod_template=hosting.pod_template,
        port=names.PORT_ENVIRONMENT if ours else 0,
        startup_sec=120,
        ports={"http": names.PORT_ENVIRONMENT} if ours else {},
        env=[
            {"name": "OPENAI_BASE_URL", "value": config.gateway_url},
            *({"name": variable.name, "value": variable.value} for variable in hosting.env),
        ],
        image=hosting.image,
        command=hosting.command,
    )


BUILDERS: dict[str, Callable[[Context], Workload]] = {
    names.ENGINE: engine,
    names.GATEWAY: gateway,
    names.JUDGE: judge,
    names.JUDGE_MODEL: judge_model,
    names.TRAINER: trainer,
    names.ENVIRONMENT: environment,
}


def _weights_volume(context: Context) -> Object:
    training = context.training
    claim = training.spec.storage.weights.existing_claim or names.weights_claim(training.name)
    return {"name": "weights", "persistentVolumeClaim": {"claimName": claim}}


def _experience_volume(context: Context) -> Object:
    training = context.training
    claim = training.spec.storage.experience.existing_claim or names.experience_claim(training.name)
    return {"name": "experience", "persistentVolumeClaim": {"claimName": claim}}
