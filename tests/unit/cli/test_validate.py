from pathlib import Path

import pytest
from click.testing import CliRunner

from openclaw_cli.main import main

ROOT = Path(__file__).resolve().parents[3]
GOOD = """\
apiVersion: openclawrl.io/v1alpha1
kind: OpenClawTraining
metadata:
  name: demo
spec:
  model: {path: base}
  api: {baseUrl: "http://judge/v1"}
  judge: {model: m}
"""


def run(tmp_path: Path, text: str) -> tuple[int, str]:
    file = tmp_path / "t.yaml"
    file.write_text(text)
    result = CliRunner().invoke(main, ["validate", str(file)])
    return result.exit_code, result.output.replace(str(file), "t.yaml")


def test_valid_resource_passes(tmp_path: Path) -> None:
    assert run(tmp_path, GOOD) == (0, "1 valid\n")


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        (
            "  policyServing:\n    pauseTimeoutSec: 0\n",
            "t.yaml:10: spec.policyServing.pauseTimeoutSec: is 0: Input should be greater than or equal to 10",
        ),
        ("  queue:\n    maxsize: 9\n", "t.yaml:10: spec.queue.maxsize: unknown field; remove it or correct its name"),
        (
            "  policyServing:\n    inFlight: stop\n",
            "t.yaml:10: spec.policyServing.inFlight: is 'stop': Input should be 'retract', 'drain' or 'abort'",
        ),
        (
            "  queue:\n    maxSize: 8\n",
            "t.yaml:10: spec.queue.maxSize must hold (policyTraining.maxHeadOffPolicyness + 1) * "
            "rolloutBatchSize samples (is 8)\n",
        ),
        (
            "  policyTraining:\n    minBatch: 99\n",
            "t.yaml:10: spec.policyTraining.minBatch must be at most rolloutBatchSize (is 99)\n",
        ),
        ('  queue: {maxSize: "512"}\n', "t.yaml:9: spec.queue.maxSize: is '512': Input should be a valid integer"),
        (
            "  policyServing:\n    pause_timeout_sec: 60\n",
            "t.yaml:10: spec.policyServing.pause_timeout_sec: unknown field; remove it or correct its name",
        ),
        (
            "  policyServing:\n    hold: {until: 2026-01-01T00:00:00, reason: x}\n",
            "t.yaml:10: spec.policyServing.hold.until: is '2026-01-01T00:00:00': Input should have timezone info",
        ),
    ],
)
def test_fault_names_file_line_field_and_limit(tmp_path: Path, extra: str, expected: str) -> None:
    code, output = run(tmp_path, GOOD + extra)
    assert code == 1
    assert expected in output


def test_name_too_long_for_services_is_refused(tmp_path: Path) -> None:
    code, output = run(tmp_path, GOOD.replace("name: demo", f"name: {'x' * 51}"))
    assert code == 1
    assert "t.yaml:4: metadata.name" in output and "1 to 50 characters" in output


@pytest.mark.parametrize("name", ["1st", "a.b", "Demo", "a-"])
def test_name_that_would_break_a_service_is_refused(tmp_path: Path, name: str) -> None:
    code, output = run(tmp_path, GOOD.replace("name: demo", f"name: {name}"))
    assert code == 1
    assert f"t.yaml:4: metadata.name: '{name}' must be small letters, digits and '-'" in output


def test_file_without_a_name_is_refused(tmp_path: Path) -> None:
    code, output = run(tmp_path, GOOD.replace("  name: demo", "  labels: {a: b}"))
    assert code == 1
    assert "metadata.name: '' must have 1 to 50 characters" in output


def test_name_too_long_for_a_trainer_of_several_pods_is_refused(tmp_path: Path) -> None:
    long = GOOD.replace("name: demo", f"name: {'x' * 41}")
    assert run(tmp_path, long) == (0, "1 valid\n")
    code, output = run(tmp_path, long + "  policyTraining: {nodes: 2}\n")
    assert code == 1
    assert "has 41 characters, but with spec.policyTraining.nodes 2 at most 40: take a shorter name" in output


def test_hold_written_as_a_yaml_timestamp_is_valid(tmp_path: Path) -> None:
    hold = "  policyServing:\n    hold: {until: 2026-01-01T00:00:00Z, reason: moving}\n"
    assert run(tmp_path, GOOD + hold) == (0, "1 valid\n")


def test_file_without_a_training_is_an_error(tmp_path: Path) -> None:
    code, output = run(tmp_path, "kind: Pod\n")
    assert (code, output) == (1, "t.yaml: no OpenClawTraining in there\n")


def test_resource_of_another_api_version_is_refused(tmp_path: Path) -> None:
    code, output = run(tmp_path, GOOD.replace("v1alpha1", "v1"))
    assert code == 1
    assert "t.yaml:1: apiVersion is 'openclawrl.io/v1', expected openclawrl.io/v1alpha1" in output


def test_broken_yaml_names_file_and_line(tmp_path: Path) -> None:
    code, output = run(tmp_path, "kind: [\n")
    assert code == 1
    assert "t.yaml:2: not valid YAML or JSON" in output


@pytest.mark.parametrize(
    "file", sorted((ROOT / "examples").rglob("training*.yaml")), ids=lambda file: str(file.relative_to(ROOT))
)
def test_every_example_is_valid(file: Path) -> None:
    result = CliRunner().invoke(main, ["validate", str(file)])
    assert (result.exit_code, result.output) == (0, "1 valid\n")
