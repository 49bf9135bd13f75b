"""A trainer that resumes goes on as if it had never stopped."""

from pathlib import Path

import pytest
import torch

from openclaw_core.config.policy_training import Lora, PolicyTraining
from openclaw_trainer.advantage import RunningMean
from openclaw_trainer.checkpoint import Checkpoints, Progress
from openclaw_trainer.policy import Policy
from openclaw_trainer.snapshot import CheckpointMismatchError
from openclaw_trainer.step import Learner
from tests.unit.trainer.sampling import batch_of

SIGNALS, LAGS = [1.0, -1.0, 1.0, -1.0], [0] * 4


def _learner(base: Path, training: PolicyTraining) -> Learner:
    return Learner(Policy.load(base, training), training)


def _resume(checkpoints: Checkpoints, learner: Learner) -> Progress:
    saved = checkpoints.newest()
    assert saved is not None
    learner.restore(saved[0])
    return saved[1]


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_resumed_run_equals_the_uninterrupted_one(
    tmp_path: Path, base: Path, training: PolicyTraining, lora: PolicyTraining, kind: str
) -> None:
    settings = lora if kind == "lora" else training
    straight = _learner(base, settings)
    batches = [batch_of(straight.policy.model, 4, first=4 * i) for i in range(4)]
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step, batch in enumerate(batches):
        straight.step(batch, SIGNALS, LAGS)
        if step == 1:
            checkpoints.save(
                straight.snapshot(), Progress(step=2, version=5, epoch=1, baseline=RunningMean(0.25, 2), consumed=(7,))
            )
            drawn = torch.rand(3)
    resumed = _learner(base, settings.model_copy(update={"seed": 99}))
    progress = _resume(checkpoints, resumed)
    assert progress == Progress(step=2, version=5, epoch=1, baseline=RunningMean(0.25, 2), consumed=(7,))
    assert torch.equal(torch.rand(3), drawn), "random state goes on too"
    for batch in batches[2:]:
        resumed.step(batch, SIGNALS, LAGS)
    for name, tensor in straight.policy.export().items():
        assert torch.equal(tensor, resumed.policy.export()[name]), name


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path, base: Path, lora: PolicyTraining) -> None:
    learner, checkpoints = _learner(base, lora), Checkpoints(tmp_path, keep=2)
    for step in (1, 2, 3, 10):
        checkpoints.save(learner.snapshot(), Progress(step=step))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000003", "step-00000010"]
    assert _resume(checkpoints, learner).step == 10


def test_unfinished_checkpoint_is_not_resumed_from(
    tmp_path: Path, base: Path, lora: PolicyTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, checkpoints = _learner(base, lora), Checkpoints(tmp_path, keep=2)
    checkpoints.save(learner.snapshot(), Progress(step=1))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            checkpoints.save(learner.snapshot(), Progress(step=2))
    assert _resume(Checkpoints(tmp_path, keep=2), learner).step == 1


def test_edited_learning_rate_counts_after_a_resume(tmp_path: Path, base: Path, lora: PolicyTraining) -> None:
    Checkpoints(tmp_path, keep=1).save(_learner(base, lora).snapshot(), Progress(step=1))
    slower = _learner(base, lora.model_copy(update={"learning_rate": 1e-6}))
    _resume(Checkpoints(tmp_path, keep=1), slower)
    assert [group["lr"] for group in slower.optimizer.param_groups] == [1e-6]


def test_checkpoint_of_another_configuration_is_refused(
    tmp_path: Path, base: Path, training: PolicyTraining, lora: PolicyTraining
) -> None:
    Checkpoints(tmp_path, keep=1).save(_learner(base, lora).snapshot(), Progress(step=1))
    with pytest.raises(
        CheckpointMismatchError, match=r"lora_A.* and absent by the spec: set spec\.policyTraining\.lora"
    ):
        _resume(Checkpoints(tmp_path, keep=1), _learner(base, training))


def test_checkpoint_of_another_rank_is_refused_with_both_shapes_and_changes_nothing(
    tmp_path: Path, base: Path, lora: PolicyTraining
) -> None:
    Checkpoints(tmp_path, keep=1).save(_learner(base, lora).snapshot(), Progress(step=1))
    other = _learner(base, lora.model_copy(update={"lora": Lora(rank=2, alpha=8)}))
    before = {name: parameter.detach().clone() for name, parameter in other.policy.trainable().items()}
    with pytest.raises(CheckpointMismatchError, match=r"is 4×48 in the newest checkpoint and 2×48 .*delete"):
        _resume(Checkpoints(tmp_path, keep=1), other)
    assert all(torch.equal(before[name], parameter) for name, parameter in other.policy.trainable().items())


def test_start_without_a_checkpoint_finds_none(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "none", keep=1).newest() is None
