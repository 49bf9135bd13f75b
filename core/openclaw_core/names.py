"""Names every process agrees on: API group, labels, annotations, object names, ports, mount paths.

The operator creates objects under these names; gateway, trainer and agent find them by the same functions.
Nothing here knows what the objects contain.
"""

GROUP = "openclawrl.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "OpenClawTraining"
PLURAL = "openclawtrainings"
SINGULAR = "openclawtraining"
SHORT_NAME = "oct"
FIELD_MANAGER = "openclaw-operator"

LABEL_TRAINING = f"{GROUP}/training"
LABEL_COMPONENT = f"{GROUP}/component"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGED_BY = "openclaw-operator"

ANNOTATION_REVISION = f"{GROUP}/revision"
ANNOTATION_SECRETS = f"{GROUP}/secrets"
ANNOTATION_WEIGHT_SYNC = f"{GROUP}/weight-sync"

# On the training, written by a person: one sync now. Its value is an id of theirs, echoed in status.
ANNOTATION_SYNC = f"{GROUP}/sync"

# On Lease <name>-published, written by the trainer.
ANNOTATION_VERSION = f"{GROUP}/version"
ANNOTATION_DIGEST = f"{GROUP}/digest"
ANNOTATION_TRAINER_EPOCH = f"{GROUP}/trainer-epoch"

# On Lease <name>-weight-sync, written by the operator.
ANNOTATION_PAUSE_VERSION = f"{GROUP}/pause-version"
ANNOTATION_TARGET_VERSION = f"{GROUP}/target-version"
ANNOTATION_SERVING_VERSION = f"{GROUP}/serving-version"
ANNOTATION_BAD_VERSIONS = f"{GROUP}/bad-versions"
ANNOTATION_RELEASABLE = f"{GROUP}/releasable"
ANNOTATION_ATTEMPT = f"{GROUP}/attempt"
ANNOTATION_NOT_BEFORE = f"{GROUP}/not-before"
ANNOTATION_HOLD = f"{GROUP}/hold"
ANNOTATION_CLAIM = f"{GROUP}/claim"
ANNOTATION_CANARY = f"{GROUP}/canary"
ANNOTATION_HELD = f"{GROUP}/held"
ANNOTATION_SYNC_REQUEST = f"{GROUP}/sync-request"

GATEWAY = "gateway"
ENGINE = "engine"
JUDGE = "judge"
TRAINER = "trainer"
ENVIRONMENT = "environment"
JUDGE_MODEL = "judge-model"
THIS_OPERATOR = f"{GROUP}/operator"
"""Value of `spec.managedBy` that means the same as none."""

COMPONENTS = (ENGINE, GATEWAY, JUDGE, TRAINER, ENVIRONMENT)
"""Those with an image of their own."""
WORKLOADS = (*COMPONENTS, JUDGE_MODEL)
"""All that a training can run; the judge model is served by the engine's image."""

# The gateway's public port is spec.policyServing.port (default 30000).
PORT_GATEWAY_INTERNAL = 30001
PORT_SGLANG = 8000
PORT_AGENT = 8100
PORT_JUDGE = 8200
PORT_TRAINER = 8300
PORT_SENDER = 8301
PORT_ENVIRONMENT = 8400
PORT_OPERATOR = 8080
PORT_RENDEZVOUS = 29500
"""torchrun's meeting point on the trainer's first pod."""

CONFIG_FILE = "/etc/openclaw/config.json"
TARGET_FILE = "/etc/openclaw-target/target.json"
EPOCH_FILE = "/tmp/openclaw-epoch"
WEIGHTS_DIR = "/var/lib/openclaw/weights"
EXPERIENCE_DIR = "/var/lib/openclaw/experience"
CLIENT_KEYS_DIR = "/etc/openclaw-client-keys"
CHECKPOINT_DIR = "/var/lib/openclaw/weights/checkpoints"

ENV_CONFIG = "OPENCLAW_CONFIG"
ENV_POD_NAME = "OPENCLAW_POD_NAME"
ENV_POD_UID = "OPENCLAW_POD_UID"
ENV_GATEWAY_TOKEN = "OPENCLAW_GATEWAY_TOKEN"
ENV_AGENT_TOKEN = "OPENCLAW_AGENT_TOKEN"
ENV_GATEWAY_API_KEY = "OPENCLAW_API_KEY"
ENV_POSTGRES_URL = "OPENCLAW_POSTGRES_URL"
ENV_HF_TOKEN = "HF_TOKEN"
ENV_WANDB_API_KEY = "WANDB_API_KEY"
ENV_NODE_RANK = "OPENCLAW_NODE_RANK"
"""Which pod of a trainer of several this is, from 0."""
ENV_RENDEZVOUS = "OPENCLAW_RENDEZVOUS"
"""host:port where the trainer's pods meet."""

SECRET_KEY_GATEWAY = "gateway"
SECRET_KEY_AGENT = "agent"

# Suffixes are at most 12 characters long ("-weight-sync", "-judge-model"): a name of 51 still fits DNS-63.
MAX_TRAINING_NAME = 50
TRAINING_NAME_PATTERN = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
# A StatefulSet's name and an 11 character hash are one label value (63) on its pods.
MAX_TRAINING_NAME_OF_NODES = 40


def component(training: str, name: str) -> str:
    """Name of a component's Deployment, Service and ServiceAccount."""
    return f"{training}-{name}"


def ranks(training: str) -> str:
    """Headless Service (and LeaderWorkerSet) of a trainer of several pods: gives each pod its DNS name."""
    return f"{training}-ranks"


def weight_sync_lease(training: str) -> str:
    return f"{training}-weight-sync"


def published_lease(training: str) -> str:
    return f"{training}-published"


def target_config_map(training: str) -> str:
    return f"{training}-target"


def internal_secret(training: str) -> str:
    return f"{training}-internal"


def weights_claim(training: str) -> str:
    return f"{training}-weights"


def experience_claim(training: str) -> str:
    return f"{training}-experience"
