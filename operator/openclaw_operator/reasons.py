"""Reasons of conditions and events: one fixed word per state, so that machines can match on them."""

from enum import StrEnum


class Reason(StrEnum):
    READY = "Ready"
    NOT_READY = "NotReady"
    VALID = "Valid"
    INVALID_SPEC = "InvalidSpec"
    WRONG_API_KEY_ENV = "WrongApiKeyEnv"
    APPLY_FAILED = "ApplyFailed"

    RESOLVED = "Resolved"
    SECRET_MISSING = "SecretMissing"
    KEY_MISSING = "KeyMissing"
    KEY_EMPTY = "KeyEmpty"
    KEY_PLACEHOLDER = "KeyPlaceholder"
    SECRET_FORBIDDEN = "SecretForbidden"

    ALL_PODS_READY = "AllPodsReady"
    NONE_WANTED = "NoneWanted"
    NOT_ENABLED = "NotEnabled"
    SUSPENDED = "Suspended"
    BLOCKED = "Blocked"
    CLAIM_MISSING = "ClaimMissing"
    STARTING = "Starting"
    ROLLING_OUT = "RollingOut"
    PODS_MISSING = "PodsMissing"
    POD_CREATE_FAILED = "PodCreateFailed"
    VOLUME_PENDING = "VolumePending"
    UNSCHEDULABLE = "Unschedulable"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    CONTAINER_CONFIG_FAILED = "ContainerConfigFailed"
    OUT_OF_MEMORY = "OutOfMemory"
    CRASH_LOOP = "CrashLoop"
    ENDPOINT_FAILING = "EndpointFailing"
    TRAINER_FAILED = "TrainerFailed"

    RUNNING = "Running"
    HELD = "Held"
    SYNCED = "Synced"
    PREPARE_FAILED = "PrepareFailed"
    SYNC_FAILED = "SyncFailed"
    VERSION_BAD = "VersionBad"
    HOLDS_TOO_LONG = "HoldsTooLong"
    ENGINES_DIFFER = "EnginesDiffer"

    NO_FRESH_SAMPLES = "NoFreshSamples"
    NOT_MEASURED = "NotMeasured"
    WITHIN_LIMIT = "WithinLimit"
    ABOVE_LIMIT = "AboveLimit"

    SUSPENDING = "Suspending"
    NOT_SUSPENDED = "NotSuspended"

    WEIGHT_SYNCED = "WeightSynced"
    WEIGHT_SYNC_FAILED = "WeightSyncFailed"
    ENGINE_CAUGHT_UP = "EngineCaughtUp"
