"""`config.toml` + `settings.json` → the equivalent OpenClawTraining: a table of keys, applied purely.

Every key of the two files stands in `KEYS`; a key that does not is reported with its line, never dropped silently.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from openclaw_cli.located import Located, Path_
from openclaw_cli.validate import Fault
from openclaw_core import names

CONFIG, SETTINGS = "config.toml", "settings.json"
HOLD_REASON = "serving.submission_enabled is false"


class Key(NamedTuple):
    """Where a key of a file goes in `spec`."""

    file: str
    source: Path_
    target: Path_


def _section(file: str, table: str, section: str, **keys: str) -> list[Key]:
    return [Key(file, (table, key), (section, target)) for key, target in keys.items()]


KEYS: tuple[Key, ...] = (
    *_section(
        CONFIG,
        "policy_serving",
        "policyServing",
        engine="engine",
        host="host",
        port="port",
        weight_sync_pause="weightSyncPause",
        pause_timeout_sec="pauseTimeoutSec",
    ),
    *_section(
        CONFIG,
        "reward_judging",
        "rewardJudging",
        mode="mode",
        judge_concurrency="judgeConcurrency",
        judge_timeout_sec="judgeTimeoutSec",
        fire_on_turn_end="fireOnTurnEnd",
    ),
    *_section(
        CONFIG,
        "policy_training",
        "policyTraining",
        engine="engine",
        max_head_off_policyness="maxHeadOffPolicyness",
        stale_filter_steps="staleFilterSteps",
        queue_type="queueType",
    ),
    *_section(CONFIG, "queue", "queue", max_size="maxSize", drop_policy="dropPolicy"),
    *_section(SETTINGS, "api", "api", base_url="baseUrl", api_key_env="apiKeyEnv", timeout_sec="timeoutSec"),
    *_section(SETTINGS, "serving", "policyServing", submission_enabled="hold", pause_on_weight_sync="weightSyncPause"),
    *_section(SETTINGS, "judge", "judge", model="model", temperature="temperature", max_tokens="maxTokens"),
    *_section(SETTINGS, "logging", "logging", log_rollout_logprob_diff="logRolloutLogprobDiff"),
)
_WORDS = {"drop_oldest": "dropOldest"}


class Converted(NamedTuple):
    """The resource, what is wrong, each with file and line, and where each of its fields came from."""

    resource: dict[str, Any]
    problems: list[str]
    origin: Mapping[Path_, str]
    """`file:line: key` by the field's path in `spec`."""

    def told(self, fault: Fault) -> str:
        """A fault of the resource at the key that its author wrote."""
        return f"{self.origin.get(fault.path[1:], 'converted resource')}: {fault.text}"


def convert(
    files: Mapping[str, Located],
    *,
    name: str,
    model_path: str,
    secret: str,
    secret_key: str,
    trainer_gpus: int,
    now: datetime,
    file_names: Mapping[str, str],
) -> Converted:
    """Apply KEYS to both files. `file_names` are shown in problems; `now` dates a hold (24 h).

    The two files say nothing of model, Secret and GPUs: those come from the caller. 0 GPUs: none are asked for.
    """
    spec: dict[str, Any] = {"model": {"path": model_path}}
    origin: dict[Path_, str] = {}
    problems = _unknown(files, file_names)
    for key in KEYS:
        found, value = _lookup(files[key.file].data, key.source)
        if not found:
            continue
        place = f"{file_names[key.file]}:{files[key.file].line(key.source)}: {'.'.join(map(str, key.source))}"
        try:
            value = _translate(key, value, now)
        except ValueError as error:
            problems.append(f"{place}: {error}")
            continue
        if value is not None:
            problems += _put(spec, key.target, value, origin, place)
    if trainer_gpus:
        spec.setdefault("policyTraining", {})["resources"] = {"limits": {"nvidia.com/gpu": trainer_gpus}}
    spec.setdefault("api", {})["apiKeySecretRef"] = {"name": secret, "key": secret_key}
    resource = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": name}, "spec": spec}
    return Converted(resource, problems, origin)


def _translate(key: Key, value: Any, now: datetime) -> Any:
    if key.source == ("serving", "submission_enabled"):
        if not isinstance(value, bool):
            raise ValueError(f"is {value!r}, must be true or false")
        until = (now + timedelta(hours=24)).strftime("%Y-%m-%dT%H:%M:%SZ")
        return None if value else {"until": until, "reason": HOLD_REASON}
    return _WORDS.get(value, value) if isinstance(value, str) else value


def _put(spec: dict[str, Any], target: Path_, value: Any, origin: dict[Path_, str], place: str) -> list[str]:
    section = spec.setdefault(str(target[0]), {})
    if target in origin and section[target[1]] != value:
        return [f"{place}: is {value!r} but {origin[target]} says {section[target[1]]!r}; keep one of the two"]
    section[target[1]] = value
    origin[target] = place
    return []


def _unknown(files: Mapping[str, Located], file_names: Mapping[str, str]) -> list[str]:
    known: dict[str, set[Path_]] = {CONFIG: set(), SETTINGS: set()}
    for key in KEYS:
        known[key.file] |= {key.source, key.source[:1]}
    problems = []
    for file, located in files.items():
        if not isinstance(located.data, dict):
            problems.append(f"{file_names[file]}:1: must hold tables of keys")
            continue
        for table, entries in located.data.items():
            paths = [(table, entry) for entry in entries] if isinstance(entries, dict) else []
            for path in [(table,), *paths]:
                if path not in known[file] and (path == (table,) or (table,) in known[file]):
                    dotted = ".".join(path)
                    problems.append(f"{file_names[file]}:{located.line(path)}: unknown key {dotted}; remove it")
    return problems


def _lookup(data: Any, path: Path_) -> tuple[bool, Any]:
    for step in path:
        if not isinstance(data, dict) or step not in data:
            return False, None
        data = data[step]
    return True, data
