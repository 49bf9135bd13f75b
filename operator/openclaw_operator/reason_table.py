"""What every reason means, and the table of them in docs/conditions.md: `python -m openclaw_operator.reason_table`.

Called by `make generate`; a test proves the page fresh and every reason explained.
"""

from collections.abc import Iterable
from pathlib import Path

from openclaw_core.status import ConditionType, Phase
from openclaw_operator.reasons import Reason

PAGE = "docs/conditions.md"
CONDITIONS: dict[ConditionType, str] = {
    ConditionType.READY: "Every component runs at the current revision and generation. Its reason and message are "
    "those of the condition that stands in the way.",
    ConditionType.CONFIG_VALID: "The spec can be acted on and the API server took every object made from it.",
    ConditionType.SECRETS_RESOLVED: "Every Secret key the spec names is there and looks like a key.",
    ConditionType.SERVING_READY: "Engines and gateways are ready.",
    ConditionType.JUDGING_READY: "Judges are ready and their endpoint answers.",
    ConditionType.ENVIRONMENT_READY: "The environment is ready, or none is wanted.",
    ConditionType.TRAINING_READY: "The trainer is ready and has not failed.",
    ConditionType.WEIGHT_SYNC_PAUSED: "Submissions are paused for a weight sync now.",
    ConditionType.WEIGHT_SYNC_DEGRADED: "Weights do not reach the engines as they should.",
    ConditionType.DRIFT_HIGH: "Engine and trainer disagree on samples of lag 0.",
    ConditionType.SUBMISSIONS_HELD: "An admin's hold refuses submissions now.",
    ConditionType.CANARY_SERVING: "A new version serves on canary engines beside the stable one. Only there where "
    "`spec.policyServing.rollout` is set.",
    ConditionType.SUSPENDED: "No pod of the training is left.",
}
PHASES: dict[Phase, str] = {
    Phase.INVALID: "the spec breaks a rule; nothing is changed until it is edited",
    Phase.BLOCKED: "a Secret, key or claim is missing; what needs it is not started",
    Phase.STARTING: "on the way to Running for the first time, or after an edit",
    Phase.RUNNING: "Ready",
    Phase.DEGRADED: "was Running; a component is not ready now",
    Phase.SUSPENDING: "pods are ending",
    Phase.SUSPENDED: "no pod is left; claims, Services and the store stay",
}
MEANINGS: dict[Reason, str] = {
    Reason.READY: "all conditions below hold",
    Reason.VALID: "nothing is wrong with the spec",
    Reason.INVALID_SPEC: "the spec, admitted by an older CRD, breaks a rule; the message names field, value and fix",
    Reason.WRONG_API_KEY_ENV: "`spec.api.apiKeyEnv` names a variable the pod needs itself; take another",
    Reason.APPLY_FAILED: "the API server refused an object, in its own words; often a podTemplate or a quota",
    Reason.RESOLVED: "every key is there",
    Reason.SECRET_MISSING: "the Secret does not exist; create it (no edit of the training is needed), or name another",
    Reason.KEY_MISSING: "the Secret has not got the key",
    Reason.KEY_EMPTY: "the key is empty",
    Reason.KEY_PLACEHOLDER: "the key holds a placeholder such as `changeme`",
    Reason.SECRET_FORBIDDEN: "the operator may not read the Secret",
    Reason.ALL_PODS_READY: "all pods of the current revision are ready",
    Reason.NONE_WANTED: "the spec asks for no pods",
    Reason.NOT_ENABLED: "`spec.environmentHosting.enabled` is false",
    Reason.SUSPENDED: "suspended by `spec.suspend`",
    Reason.BLOCKED: "not started, because a Secret key is missing",
    Reason.CLAIM_MISSING: "not started, because an `existingClaim` does not exist",
    Reason.STARTING: "pods are being made or are starting",
    Reason.ROLLING_OUT: "pods of an older revision still run",
    Reason.PROGRESS_DEADLINE_EXCEEDED: "a start or roll takes longer than the component's longest start and 5 minutes",
    Reason.AWAITING_ADMISSION: "pods wait for their scheduling gates, e.g. for Kueue's admission",
    Reason.PODS_MISSING: "fewer pods exist than wanted",
    Reason.POD_CREATE_FAILED: "pods cannot be made: a quota, a policy, an admission webhook",
    Reason.VOLUME_PENDING: "a claim is not bound; no StorageClass serves its access mode, or the provisioner is slow",
    Reason.UNSCHEDULABLE: "no node has what the pod asks for",
    Reason.IMAGE_PULL_FAILED: "the image cannot be pulled",
    Reason.CONTAINER_CONFIG_FAILED: "the container cannot be made, e.g. a key of its Secret is gone",
    Reason.OUT_OF_MEMORY: "the container was killed for memory; raise `resources.limits`",
    Reason.CRASH_LOOP: "the container ends again and again; the message has its last words",
    Reason.MODEL_MISSING: "the base model is not on the volume",
    Reason.ENDPOINT_FAILING: "the judge endpoint fails; the message has its words",
    Reason.TRAINER_FAILED: "the trainer failed; the message says why",
    Reason.RUNNING: "submissions run",
    Reason.HELD: "submissions pause; the message names version, epoch and longest duration",
    Reason.ON_HOLD: "`spec.policyServing.hold` is in force",
    Reason.NOT_ON_HOLD: "there is no hold",
    Reason.HOLD_OVER: "the hold's time is over; it can be removed from the spec",
    Reason.HOLD_TOO_LONG: "the hold ends more than 24 hours after it was set and is not enforced",
    Reason.SYNCED: "engines serve the target",
    Reason.PREPARE_FAILED: "an engine cannot prepare a version, e.g. its files are incomplete",
    Reason.SYNC_FAILED: "the last hold brought no engine to its version; it is tried again",
    Reason.VERSION_BAD: "a version failed twice and is given up; the next is tried afresh",
    Reason.HOLDS_TOO_LONG: "holds took more than a tenth of the last ten minutes",
    Reason.ENGINES_DIFFER: "an engine serves another version than the target",
    Reason.LEASE_MENDED: "event: the sync's Lease held what nobody of ours writes and was put right",
    Reason.SYNC_REQUEST_INVALID: "the annotation that asks for a sync has a wrong value",
    Reason.CANARY_SERVES: "the message compares canary and stable version so far",
    Reason.CANARY_WAITS: "the newest version waits for more engines; if for too long, the sync is degraded",
    Reason.NO_CANARY: "no version is being tried",
    Reason.CANARY_BEGAN: "event: a version serves on canary engines",
    Reason.CANARY_PROMOTED: "the canary was good enough; every engine gets it",
    Reason.CANARY_ROLLED_BACK: "the canary was worse, drifted, could not be loaded, or was not shown to be good enough "
    "in time; it is not tried again by itself",
    Reason.CANARY_CANCELLED: "an edit of the spec ended the canary",
    Reason.NO_FRESH_SAMPLES: "no samples of lag 0 have been trained yet",
    Reason.NOT_MEASURED: "the trainer has not told yet",
    Reason.WITHIN_LIMIT: "the difference is within the limit",
    Reason.ABOVE_LIMIT: "the difference is above the limit",
    Reason.SUSPENDING: "pods are still ending",
    Reason.NOT_SUSPENDED: "`spec.suspend` is false",
    Reason.WEIGHT_SYNCED: "event: a version is served, with the pause in milliseconds",
    Reason.WEIGHT_SYNC_FAILED: "event: a hold failed",
    Reason.ENGINE_CAUGHT_UP: "event: an engine was brought to the target alone, without a hold",
}


def page() -> str:
    """The whole page."""
    lines = [
        "# Conditions, phases and reasons",
        "",
        "<!-- Generated by `make generate` from operator/openclaw_operator; do not edit. -->",
        "",
        "`kubectl get oct` shows the phase, `-o wide` the message, `kubectl describe oct NAME` conditions and events.",
        "",
        *_table(("condition", "True means"), CONDITIONS.items()),
        "",
        *_table(("phase", "meaning"), PHASES.items()),
        "",
        *_table(("reason", "meaning"), MEANINGS.items()),
    ]
    return "\n".join(lines) + "\n"


def _table(heads: tuple[str, str], rows: Iterable[tuple[str, str]]) -> list[str]:
    cells = [f"| `{key}` | {text} |" for key, text in rows]
    return [f"| {heads[0]} | {heads[1]} |", "| --- | --- |", *cells]


if __name__ == "__main__":
    (Path(__file__).resolve().parents[2] / PAGE).write_text(page())
