"""Every default of the resource, pinned: a change of one is a change of behaviour and must be seen in review."""

from openclaw_core.config.spec import TrainingSpec

MINIMAL = {"model": {"path": "base"}, "api": {"baseUrl": "http://judge/v1"}, "judge": {"model": "m"}}
RESOURCES = {"requests": {}, "limits": {}}
ROLLOUT = {"canaryReplicas": 1, "minTurns": 50, "maxDurationSec": 1800, "maxScoreDrop": 0.2, "maxDrift": None}


def test_every_default_of_the_spec() -> None:
    spec = TrainingSpec.model_validate(MINIMAL)
    assert spec.model_dump(mode="json", by_alias=True) == {
        "model": {"path": "base", "huggingFace": None, "servedName": "policy"},
        "policyServing": {
            "engine": "sglang",
            "device": "cuda",
            "replicas": 1,
            "host": "0.0.0.0",
            "port": 30000,
            "weightSyncPause": True,
            "pauseTimeoutSec": 120,
            "inFlight": "retract",
            "doubleBuffer": None,
            "tensorParallelSize": 1,
            "args": [],
            "pinnedVersion": None,
            "hold": None,
            "rollout": None,
            "resources": RESOURCES,
            "podTemplate": {},
            "gateway": {
                "replicas": 1,
                "apiKeySecretRef": None,
                "apiKeysSecretRef": None,
                "defaultTurnType": "main",
                "maxConcurrent": 256,
                "maxInFlightPerEngine": None,
                "firstTokenTimeoutSec": 600,
                "idleTimeoutSec": 300,
                "nextStateGraceSec": 60,
                "sessionIdleSec": 1800,
                "onStoreDown": "reject",
                "resources": RESOURCES,
                "podTemplate": {},
            },
        },
        "environmentHosting": {
            "enabled": False,
            "kind": "simulatedUser",
            "replicas": 1,
            "image": None,
            "command": [],
            "env": [],
            "egress": [],
            "resources": RESOURCES,
            "podTemplate": {},
        },
        "rewardJudging": {
            "mode": "async",
            "judgeConcurrency": 4,
            "judgeTimeoutSec": 30,
            "fireOnTurnEnd": True,
            "votes": 1,
            "replicas": 1,
            "deployed": None,
            "resources": RESOURCES,
            "podTemplate": {},
        },
        "policyTraining": {
            "engine": "fsdp",
            "device": "cuda",
            "method": "binaryRl",
            "maxHeadOffPolicyness": 2,
            "staleFilterSteps": 8,
            "onStale": "reject",
            "queueType": "fifo",
            "rolloutBatchSize": 16,
            "minBatch": 8,
            "batchWaitSec": 300,
            "learningRate": 1e-5,
            "clipLow": 0.2,
            "clipHigh": 0.28,
            "klCoef": 0.0,
            "klType": "lowVar",
            "entropyCoef": 0.0,
            "advantage": "none",
            "offPolicy": "decoupled",
            "maxGradNorm": 1.0,
            "maxSequenceTokens": 32768,
            "dtype": "bfloat16",
            "seed": 0,
            "lora": None,
            "nodes": 1,
            "procsPerNode": 1,
            "checkpoint": {"everySteps": 1, "keep": 3},
            "resources": RESOURCES,
            "podTemplate": {},
        },
        "queue": {
            "maxSize": 512,
            "dropPolicy": "reject",
            "store": "sqlite",
            "postgres": None,
            "retention": {"turns": 20000, "days": 0},
        },
        "api": {
            "baseUrl": "http://judge/v1",
            "apiKeySecretRef": None,
            "apiKeyEnv": "OPENCLAW_JUDGE_API_KEY",
            "timeoutSec": 60,
        },
        "judge": {"model": "m", "temperature": 0.0, "maxTokens": 512},
        "logging": {"logRolloutLogprobDiff": True, "tensorboard": False, "wandb": None},
        "storage": {
            "weights": {
                "size": "10Gi",
                "storageClassName": None,
                "existingClaim": None,
                "accessModes": ["ReadWriteMany"],
                "transfer": "disk",
            },
            "experience": {"size": "2Gi", "storageClassName": None, "existingClaim": None},
        },
        "suspend": False,
        "managedBy": None,
        "retainStorage": False,
    }


def test_every_default_of_a_rollout() -> None:
    spec = TrainingSpec.model_validate(MINIMAL | {"policyServing": {"replicas": 2, "rollout": {}}})
    assert spec.policy_serving.rollout is not None
    assert spec.policy_serving.rollout.model_dump(mode="json", by_alias=True) == ROLLOUT
