"""Phase, counts, conditions and events from facts."""

from dataclasses import replace
from typing import Any

import pytest

from openclaw_core import names, wire
from openclaw_core import status as out
from openclaw_core.leases import Hold, WeightSyncState, parse_time
from openclaw_core.status import ConditionType
from openclaw_core.wire import AgentState, JudgeState, Stats, TrainerState, Update
from openclaw_operator.apply import Fault
from openclaw_operator.conditions import ComponentFacts, Facts, Verdict
from openclaw_operator.events import Event
from openclaw_operator.facts import measured
from openclaw_operator.metrics import Metrics
from openclaw_operator.reasons import Reason
from openclaw_operator.report import dump, merge_patch
from openclaw_operator.secrets import Problem
from openclaw_operator.status import compute, events, mirrored
from openclaw_operator.telemetry import Telemetry
from openclaw_operator.weightsync.model import EngineView, Phase, RolloutSide, RolloutView, SyncView, Trouble
from openclaw_operator.weightsync.rollout import Scores
from tests.unit.operator.trainings import pod

EARLY, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"
DEPLOYMENT: dict[str, Any] = {"spec": {"selector": {"matchLabels": {"a": "b"}}}, "status": {}}


def part(component: str, *, desired: int = 1, **changes: Any) -> ComponentFacts:
    pods = [pod(component, index=index, revision="r1") for index in range(desired)]
    return ComponentFacts(desired=desired, pods=pods, workload=DEPLOYMENT, revision="r1", **changes)


def facts(**changes: Any) -> Facts:
    components = {component: part(component) for component in names.COMPONENTS}
    components[names.ENVIRONMENT] = ComponentFacts(desired=0)
    return replace(Facts(generation=1, now=EARLY, components=components, sync=sync()), **changes)


def sync(**changes: Any) -> SyncView:
    idle = SyncView(Phase.IDLE, WeightSyncState(serving_version="1-00000001"), "1-00000001", None, (), None, None)
    return replace(idle, **changes)


def having(component: str, **changes: Any) -> dict[str, ComponentFacts]:
    base = facts().components
    return {**base, component: replace(base[component], **changes)}


def condition(status: out.TrainingStatus, kind: ConditionType) -> tuple[str, str]:
    found = next(item for item in status.conditions or [] if item.type == kind)
    return found.status, found.reason


def test_training_with_all_pods_ready_runs() -> None:
    status = compute(facts())
    assert (status.phase, condition(status, ConditionType.READY)) == ("Running", ("True", "Ready"))
    assert [item.type for item in status.conditions or []] == [
        kind for kind in ConditionType if kind != ConditionType.CANARY_SERVING
    ], "nothing is said of canaries where no rollout is set"
    assert status.serving is not None
    assert (status.serving.summary, status.serving.selector, status.serving.replicas) == ("1/1", "a=b", 1)


@pytest.mark.parametrize(
    ("pods", "reason"),
    [
        ([pod("engine", revision="r1", ready=False)], Reason.STARTING),
        ([], Reason.STARTING),
        ([pod("engine", revision="r1"), pod("engine", index=1, revision="old")], Reason.ROLLING_OUT),
        (
            [
                pod(
                    "engine",
                    revision="r1",
                    ready=False,
                    conditions=[{"type": "PodScheduled", "status": "False", "message": "0/1 nodes: no GPU"}],
                )
            ],
            Reason.UNSCHEDULABLE,
        ),
        ([pod("engine", revision="r1", ready=False, containerStatuses=[
            {"name": "engine", "image": "x", "ready": False, "state": {"waiting": {"reason": "ImagePullBackOff"}}}
        ])], Reason.IMAGE_PULL_FAILED),
        ([pod("engine", revision="r1", ready=False, containerStatuses=[
            {
                "name": "engine",
                "ready": False,
                "restartCount": 2,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
            }
        ])], Reason.OUT_OF_MEMORY),
    ],
)  # fmt: skip
def test_training_is_not_ready_while_a_pod_is_missing_old_or_broken(pods: list[Any], reason: Reason) -> None:
    status = compute(facts(components=having("engine", pods=pods)))
    assert condition(status, ConditionType.SERVING_READY) == ("False", reason)
    assert condition(status, ConditionType.READY) == ("False", reason)
    assert status.phase == "Starting"


UNBOUND = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes: unbound immediate PersistentVolumeClaims"}
UNSEEN = {"reason": "CreateContainerConfigError", "message": "failed to sync secret cache: timed out waiting"}
NO_KEY = {"reason": "CreateContainerConfigError", "message": "couldn't find key api-key in Secret lab/judge-api"}


def stuck(**status: Any) -> list[Any]:
    return [pod("engine", revision="r1", ready=False, **status)]


def refused(message: str) -> dict[str, Any]:
    return {**DEPLOYMENT, "status": {"conditions": [{"type": "ReplicaFailure", "status": "True", "message": message}]}}


@pytest.mark.parametrize(
    ("changes", "reason", "words"),
    [
        ({"pods": stuck(conditions=[UNBOUND])}, Reason.VOLUME_PENDING, UNBOUND["message"]),
        (
            {"pods": stuck(containerStatuses=[{"name": "engine", "ready": False, "state": {"waiting": NO_KEY}}])},
            Reason.CONTAINER_CONFIG_FAILED,
            NO_KEY["message"],
        ),
        (
            {"pods": stuck(containerStatuses=[{"name": "engine", "ready": False, "state": {"waiting": UNSEEN}}])},
            Reason.STARTING,
            "starting",
        ),
        ({"desired": 3}, Reason.PODS_MISSING, "engine: 1 of 3 pods exist"),
        ({"pods": [], "workload": refused("exceeded quota: gpus")}, Reason.POD_CREATE_FAILED, "exceeded quota: gpus"),
    ],
)
def test_cause_of_missing_and_waiting_pods_is_told(changes: dict[str, Any], reason: Reason, words: str) -> None:
    status = compute(facts(components=having("engine", **changes)))
    assert condition(status, ConditionType.SERVING_READY) == ("False", reason)
    assert words in (status.message or "")


def test_component_of_no_pods_is_as_the_spec_wants_it() -> None:
    status = compute(facts(components=having("judge", desired=0, pods=[])))
    assert condition(status, ConditionType.JUDGING_READY) == ("True", "NoneWanted")
    assert status.phase == "Running"


def test_trainer_that_failed_says_why() -> None:
    state = TrainerState(phase="failed", step=3, version="3-00000003", trainer_epoch=1, error="no space left on device")
    status = compute(facts(telemetry=Telemetry(trainer=state)))
    assert condition(status, ConditionType.TRAINING_READY) == ("False", "TrainerFailed")
    assert status.message == "the trainer failed: no space left on device"


def test_crash_loop_shows_the_last_words_of_the_container() -> None:
    broken = pod(
        "trainer",
        revision="r1",
        ready=False,
        containerStatuses=[
            {
                "name": "trainer",
                "ready": False,
                "restartCount": 3,
                "state": {"running": {}},
                "lastState": {"terminated": {"exitCode": 1, "message": "ValueError: no model at /models/x"}},
            }
        ],
    )
    status = compute(facts(components=having("trainer", pods=[broken])))
    assert condition(status, ConditionType.TRAINING_READY) == ("False", "CrashLoop")
    assert "3 restarts; its last words: ValueError: no model at /models/x" in (status.message or "")


def test_ready_goes_back_and_the_phase_says_degraded_when_a_pod_is_lost() -> None:
    before = compute(facts())
    lost = compute(facts(previous=before, now=LATER, components=having("judge", pods=[])))
    assert (lost.phase, condition(lost, ConditionType.READY)[0]) == ("Degraded", "False")


def test_edit_of_a_running_training_is_starting_not_degraded() -> None:
    before = compute(facts())
    edited = compute(facts(previous=before, generation=2, components=having("judge", pods=[])))
    assert edited.phase == "Starting"


def test_transition_time_moves_only_with_the_status() -> None:
    first = compute(facts())
    same = compute(facts(previous=first, now=LATER))
    assert same == first
    lost = compute(facts(previous=first, now=LATER, components=having("judge", pods=[])))
    times = {item.type: item.last_transition_time for item in lost.conditions or []}
    assert {kind for kind, moment in times.items() if moment == LATER} == {"Ready", "JudgingReady"}


def test_status_without_a_change_is_not_written() -> None:
    first = compute(facts())
    assert merge_patch(dump(first), dump(compute(facts(previous=first, now=LATER)))) == {}


def test_patch_names_only_what_differs_and_removes_what_went() -> None:
    old = {"a": 1, "b": {"c": 1, "d": [1]}, "gone": 2}
    assert merge_patch(old, {"a": 1, "b": {"c": 2, "d": [1]}, "new": 3}) == {"b": {"c": 2}, "new": 3, "gone": None}


def test_counts_are_of_the_current_revision() -> None:
    pods = [
        pod("engine", revision="old"),
        pod("engine", index=1, revision="r1"),
        pod("engine", index=2, revision="r1", ready=False),
    ]
    status = compute(facts(components=having("engine", pods=pods, desired=2)))
    assert status.serving is not None
    assert (status.serving.ready, status.serving.updated, status.serving.desired) == (1, 2, 2)
    assert (status.serving.summary, status.serving.replicas) == ("1/2", 3)


def test_status_and_every_condition_name_the_generation_they_speak_of() -> None:
    status = compute(facts(generation=7))
    assert status.observed_generation == 7
    assert {item.observed_generation for item in status.conditions or []} == {7}


SECRETS, CLAIMS = "spec.api.apiKeySecretRef: …", "spec.storage.weights.existingClaim: …"
ENV = Verdict(ConditionType.CONFIG_VALID, "False", Reason.WRONG_API_KEY_ENV, "spec.api.apiKeyEnv 'PATH' …")
INVALID = Verdict(ConditionType.CONFIG_VALID, "False", Reason.INVALID_SPEC, "spec.queue.maxSize …")
REFUSED = JudgeState(ok=False, error="HTTP 401", since=0.0, counts={"requests": 4})


def waiting(component: str) -> dict[str, ComponentFacts]:
    return having(component, pods=[], workload=None, blocked=True)


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        (
            {"secret_problems": [Problem(Reason.SECRET_MISSING, SECRETS, frozenset({"judge"}))],
             "components": waiting("judge")},
            ("SecretMissing", f"SecretsResolved: {SECRETS}"),
        ),
        (
            {"claim_problems": [CLAIMS], "components": waiting("trainer")},
            ("ClaimMissing", f"TrainingReady: trainer is not started: {CLAIMS}"),
        ),
        ({"invalid": ENV}, ("WrongApiKeyEnv", f"ConfigValid: {ENV.message}")),
        ({"invalid": INVALID}, ("InvalidSpec", f"ConfigValid: {INVALID.message}")),
        (
            {"faults": [Fault(("Deployment", "demo-judge"), "Deployment demo-judge: exceeded quota", None)]},
            ("ApplyFailed", "ConfigValid: Deployment demo-judge: exceeded quota"),
        ),
        (
            {"telemetry": Telemetry(judges=(REFUSED,))},
            ("EndpointFailing", "JudgingReady: the judge endpoint (spec.api.baseUrl) fails: HTTP 401; "
             "judging goes on by itself once it answers"),
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("new", [True, False])
def test_mistake_of_a_user_is_one_warning_that_says_what_to_mend(
    changes: dict[str, Any], warning: tuple[str, str], new: bool
) -> None:
    before = out.TrainingStatus() if new else compute(facts())
    status = compute(facts(previous=before, **changes))
    warnings = [(event.reason, event.message) for event in events(before, status) if event.kind == "Warning"]
    assert warnings == [warning]
    assert events(status, compute(facts(previous=status, **changes))) == []


def test_missing_secret_blocks_and_names_who_waits() -> None:
    problem = Problem(Reason.SECRET_MISSING, "spec.api.apiKeySecretRef: …", frozenset({"judge"}))
    components = having("judge", pods=[], workload=None, blocked=True)
    status = compute(facts(secret_problems=[problem], components=components))
    assert status.phase == "Blocked"
    assert condition(status, ConditionType.SECRETS_RESOLVED) == ("False", "SecretMissing")
    assert condition(status, ConditionType.JUDGING_READY) == ("False", "Blocked")
    assert condition(status, ConditionType.READY) == ("False", "SecretMissing")


def test_suspended_only_when_the_pods_are_gone() -> None:
    ending = compute(facts(suspend=True))
    assert (ending.phase, condition(ending, ConditionType.SUSPENDED)) == ("Suspending", ("False", "Suspending"))
    gone = {component: ComponentFacts(desired=0) for component in names.COMPONENTS}
    done = compute(facts(suspend=True, components=gone))
    assert (done.phase, condition(done, ConditionType.SUSPENDED)) == ("Suspended", ("True", "Suspended"))
    assert condition(done, ConditionType.READY) == ("False", "Suspended")


def test_suspending_is_told_in_one_event() -> None:
    running = compute(facts())
    ending = compute(facts(suspend=True, previous=running))
    gone = {component: replace(known, pods=[], ending=0) for component, known in facts().components.items()}
    done = compute(facts(suspend=True, previous=ending, components=gone))
    told = [*events(running, ending), *events(ending, done)]
    assert [(event.kind, event.reason) for event in told] == [("Normal", "Suspended")]


def test_unhealthy_training_can_be_suspended() -> None:
    broken = having("engine", pods=[pod("engine", revision="r1", ready=False)])
    assert compute(facts(suspend=True, components=broken)).phase == "Suspending"


def test_invalid_spec_leaves_the_rest_unknown() -> None:
    verdict = Verdict(ConditionType.CONFIG_VALID, "False", Reason.INVALID_SPEC, "spec.queue.maxSize …")
    status = compute(facts(invalid=verdict))
    assert (status.phase, condition(status, ConditionType.READY)) == ("Invalid", ("False", "InvalidSpec"))
    assert condition(status, ConditionType.SERVING_READY)[0] == "Unknown"


def test_child_that_cannot_be_applied_is_named() -> None:
    fault = Fault(("Deployment", "demo-engine"), "Deployment demo-engine: exceeded quota", "engine")
    status = compute(facts(faults=[fault]))
    assert condition(status, ConditionType.CONFIG_VALID) == ("False", "ApplyFailed")
    assert condition(status, ConditionType.SERVING_READY) == ("False", "ApplyFailed")


def test_judge_endpoint_that_fails_shows_its_words() -> None:
    judge = JudgeState(ok=False, error="401 wrong key", since=0.0, counts={"requests": 4})
    status = compute(facts(telemetry=Telemetry(judges=(judge,))))
    assert condition(status, ConditionType.JUDGING_READY) == ("False", "EndpointFailing")
    assert status.message == (
        "the judge endpoint (spec.api.baseUrl) fails: 401 wrong key; judging goes on by itself once it answers"
    )


def test_judge_model_served_here_is_a_part_of_judging() -> None:
    parts = having(names.JUDGE) | {names.JUDGE_MODEL: part(names.JUDGE_MODEL)}
    status = compute(facts(judge_model_wanted=True, components=parts))
    assert condition(status, ConditionType.JUDGING_READY) == ("True", "AllPodsReady")
    assert status.judge_model is not None and status.judge_model.summary == "1/1"
    parts[names.JUDGE_MODEL] = part(names.JUDGE_MODEL, desired=0)
    parts[names.JUDGE_MODEL] = replace(parts[names.JUDGE_MODEL], desired=1)
    status = compute(facts(judge_model_wanted=True, components=parts))
    assert condition(status, ConditionType.JUDGING_READY) == ("False", "Starting")
    assert status.message == "judge-model: 0 of 1 pods exist"


def test_judge_model_served_here_that_fails_is_named_by_its_section() -> None:
    judge = JudgeState(ok=False, error="HTTP 500", since=0.0, counts={"requests": 4})
    parts = having(names.JUDGE) | {names.JUDGE_MODEL: part(names.JUDGE_MODEL)}
    status = compute(facts(judge_model_wanted=True, components=parts, telemetry=Telemetry(judges=(judge,))))
    assert (status.message or "").startswith("the judge endpoint (spec.rewardJudging.deployed) fails: HTTP 500")


MISSING = "spec.model.path: there is no /weights/base/config.json; put the model there, or correct the path"


def agent_waiting() -> AgentState:
    return AgentState(
        version=None, target=None, ready=False, paused=False, highest_epoch=0, phase="waiting_for_model", error=MISSING
    )


def test_engine_that_waits_for_its_model_says_which_and_warns_once() -> None:
    components = having(names.ENGINE, pods=[pod(names.ENGINE, revision="r1", ready=False)])
    view = sync(engines=(EngineView("demo-engine-0", agent_waiting()),))
    status = compute(facts(components=components, sync=view))
    assert condition(status, ConditionType.SERVING_READY) == ("False", "ModelMissing")
    assert (status.phase, status.message) == ("Starting", f"engine: {MISSING}")
    warning = Event("Warning", "ModelMissing", f"ServingReady: engine: {MISSING}")
    assert events(compute(facts(components=components)), status) == [warning]
    assert events(status, compute(facts(components=components, sync=view, previous=status))) == []


def test_trainer_that_waits_for_its_model_says_which() -> None:
    components = having(names.TRAINER, pods=[pod(names.TRAINER, revision="r1", ready=False)])
    state = TrainerState(phase="waiting_for_model", step=0, version="0-00000000", trainer_epoch=0, error=MISSING)
    status = compute(facts(components=components, telemetry=Telemetry(trainer=state)))
    assert condition(status, ConditionType.TRAINING_READY) == ("False", "ModelMissing")
    assert status.message == f"trainer: {MISSING}"


def test_judge_that_was_not_asked_yet_is_ready() -> None:
    judge = JudgeState(ok=False, error="no request yet", since=0.0, counts={"requests": 0})
    assert compute(facts(telemetry=Telemetry(judges=(judge,)))).phase == "Running"


def update(**changes: Any) -> Update:
    base: dict[str, Any] = {
        "step": 3, "version": "3-00000003", "samples": 8, "reward_mean": 0.25, "loss": 0.1, "lag_mean": 0.5,
        "lag_max": 1, "logprob_abs_diff": 0.2, "logprob_abs_diff_fresh": 0.001, "grad_norm": 1.0, "seconds": 2.0,
        "finished_at": 1.0,
    }  # fmt: skip
    return Update(**(base | changes))


@pytest.mark.parametrize(
    ("fresh", "expected"),
    [
        ([0.001], ("False", "WithinLimit")),
        ([0.5], ("True", "AboveLimit")),
        ([None], ("Unknown", "NoFreshSamples")),
        ([0.5, None], ("True", "AboveLimit")),
    ],
)
def test_drift_looks_at_fresh_samples_only(fresh: list[float | None], expected: tuple[str, str]) -> None:
    updates = [update(logprob_abs_diff_fresh=value) for value in fresh]
    trainer = TrainerState(phase="training", step=3, version="3-00000003", trainer_epoch=1, updates=updates)
    assert condition(compute(facts(telemetry=Telemetry(trainer=trainer))), ConditionType.DRIFT_HIGH) == expected


def test_training_numbers_come_from_trainer_and_store() -> None:
    trainer = TrainerState(phase="training", step=3, version="3-00000003", trainer_epoch=1, updates=[update()])
    stats = Stats(served=10, recorded=8, untracked={"side": 2}, trained=5, dropped={"final": 1}, queued=2)
    numbers = compute(facts(telemetry=Telemetry(stats, trainer))).training
    assert numbers is not None
    assert (numbers.step, numbers.reward_mean, numbers.rollout_logprob_abs_diff) == (3, 0.25, 0.2)
    assert numbers.samples is not None
    assert (numbers.samples.served, numbers.samples.untracked, numbers.samples.dropped) == (10, 2, 1)


@pytest.mark.parametrize(
    "trainer", [None, TrainerState(phase="starting", step=0, version="0-00000000", trainer_epoch=0)]
)
def test_step_and_reward_outlive_a_restart_of_operator_and_trainer(trainer: TrainerState | None) -> None:
    state = TrainerState(phase="training", step=3, version="3-00000003", trainer_epoch=1, updates=[update()])
    before = compute(facts(telemetry=Telemetry(Stats(served=10, recorded=8), state)))
    after = compute(facts(previous=before, telemetry=Telemetry(Stats(served=12, recorded=9), trainer))).training
    assert after is not None and after.samples is not None
    assert (after.step, after.reward_mean, after.rollout_logprob_abs_diff, after.samples.served) == (3, 0.25, 0.2, 12)


def held() -> SyncView:
    hold = Hold(holder="op", epoch=4, acquired_at=parse_time(EARLY), duration_sec=30, pause_version="5-00000005")
    return sync(lease=WeightSyncState(hold=hold, epoch=4), phase=Phase.UPDATING)


def test_hold_shows_as_weight_sync_paused_and_in_the_annotation() -> None:
    status = compute(facts(sync=held()))
    assert condition(status, ConditionType.WEIGHT_SYNC_PAUSED) == ("True", "Held")
    assert mirrored(held()) == "paused epoch=4 version=5-00000005"
    assert mirrored(sync()) == "running epoch=0 serving=1-00000001"


def test_trouble_of_the_sync_degrades_it_by_its_own_reason() -> None:
    status = compute(facts(sync=sync(trouble=Trouble(Reason.VERSION_BAD, "version 5 failed"))))
    assert condition(status, ConditionType.WEIGHT_SYNC_DEGRADED) == ("True", "VersionBad")


def test_events_come_once_per_transition() -> None:
    blank = out.TrainingStatus()
    starting = compute(facts(components=having("engine", pods=[])))
    assert events(blank, starting) == []
    broken_pod = pod("engine", revision="r1", ready=False, conditions=[
        {"type": "PodScheduled", "status": "False", "message": "no GPU"}
    ])  # fmt: skip
    broken = compute(facts(previous=starting, components=having("engine", pods=[broken_pod])))
    (warning,) = events(starting, broken)
    assert (warning.kind, warning.reason) == ("Warning", "Unschedulable")
    assert "no GPU" in warning.message
    assert events(broken, broken) == []
    mended = compute(facts(previous=broken))
    (normal,) = events(broken, mended)
    assert (normal.kind, normal.reason) == ("Normal", "AllPodsReady")


COMPARED = RolloutView(
    "Serving",
    "2026-01-01T00:00:00.000000Z",
    RolloutSide("2-00000002", Scores(10, 20, 30)),
    RolloutSide("1-00000001", Scores()),
    "mean score 0.33 (60 turns) against none (0 turns)",
)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("Serving", ("True", "CanaryServes")),
        ("Promoting", ("True", "CanaryServes")),
        ("Waiting", ("False", "CanaryWaits")),
        ("Promoted", ("False", "CanaryPromoted")),
        ("RolledBack", ("False", "CanaryRolledBack")),
        ("Cancelled", ("False", "CanaryCancelled")),
    ],
)
def test_canary_is_told_in_condition_status_and_series(state: Any, said: tuple[str, str]) -> None:
    status = compute(facts(sync=sync(rollout=replace(COMPARED, state=state), rollout_wanted=True)))
    assert [item.type for item in status.conditions or []] == list(ConditionType)
    assert condition(status, ConditionType.CANARY_SERVING) == said
    assert condition(status, ConditionType.READY) == ("True", "Ready"), "a canary is no fault"
    assert status.weights is not None
    assert status.weights.rollout is not None
    assert status.weights.rollout.canary.model_dump() == {"version": "2-00000002", "turns": 60, "score_mean": 0.3333}
    metrics = Metrics()
    metrics.show("ns", "t", status)
    labels = {"namespace": "ns", "training": "t"}
    read = metrics.registry.get_sample_value
    assert read("openclawrl_rollout_state", {**labels, "state": state}) == 1
    assert read("openclawrl_rollout_turns", {**labels, "side": "canary"}) == 60
    assert read("openclawrl_rollout_score_mean", {**labels, "side": "canary"}) == 0.3333
    assert read("openclawrl_rollout_score_mean", {**labels, "side": "stable"}) is None
    metrics.clear_trainings()
    assert read("openclawrl_rollout_state", {**labels, "state": state}) is None


def test_rollout_without_a_canary_yet_says_so() -> None:
    status = compute(facts(sync=sync(rollout_wanted=True)))
    assert condition(status, ConditionType.CANARY_SERVING) == ("False", "NoCanary")


def test_drift_belongs_to_the_version_a_step_starts_from() -> None:
    def update(version: str, fresh: float | None) -> wire.Update:
        numbers = dict.fromkeys(("reward_mean", "loss", "lag_mean", "logprob_abs_diff", "grad_norm", "seconds"), 0.0)
        return wire.Update(
            step=1, version=version, samples=1, lag_max=0, logprob_abs_diff_fresh=fresh, finished_at=0.0, **numbers
        )

    updates = [update("1-00000001", 0.5), update("2-00000002", 0.01), update("3-00000003", None)]
    state = wire.TrainerState(phase="waiting", step=3, version="3-00000003", trainer_epoch=1, updates=updates)
    assert measured(Telemetry(trainer=state)).drifts == (("1-00000001", 0.01),)
