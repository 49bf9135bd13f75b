from pathlib import Path

import yaml
from click.testing import CliRunner

from openclaw_cli.main import main

PAIR = Path(__file__).resolve().parents[3] / "examples" / "convert"


def run(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, list(args))
    return result.exit_code, result.stdout, result.stderr


def write(tmp_path: Path, config: str, settings: str) -> tuple[str, str]:
    (tmp_path / "config.toml").write_text(config)
    (tmp_path / "settings.json").write_text(settings)
    return str(tmp_path / "config.toml"), str(tmp_path / "settings.json")


def test_sample_pair_becomes_the_equivalent_resource() -> None:
    code, out, err = run("convert", str(PAIR / "config.toml"), str(PAIR / "settings.json"))
    assert (code, err) == (0, "")
    assert yaml.safe_load(out) == {
        "apiVersion": "openclawrl.io/v1alpha1",
        "kind": "OpenClawTraining",
        "metadata": {"name": "policy"},
        "spec": {
            "model": {"path": "base"},
            "policyServing": {
                "engine": "sglang",
                "host": "0.0.0.0",
                "port": 30000,
                "weightSyncPause": True,
                "pauseTimeoutSec": 120,
            },
            "rewardJudging": {
                "mode": "async",
                "judgeConcurrency": 4,
                "judgeTimeoutSec": 30,
                "fireOnTurnEnd": True,
            },
            "policyTraining": {
                "engine": "megatron",
                "maxHeadOffPolicyness": 2,
                "staleFilterSteps": 8,
                "queueType": "fifo",
                "resources": {"limits": {"nvidia.com/gpu": 1}},
            },
            "queue": {"maxSize": 512, "dropPolicy": "dropOldest"},
            "api": {
                "baseUrl": "https://judge.example.com/v1",
                "apiKeyEnv": "JUDGE_API_KEY",
                "timeoutSec": 60,
                "apiKeySecretRef": {"name": "judge-api", "key": "api-key"},
            },
            "judge": {"model": "judge-large", "temperature": 0.0, "maxTokens": 512},
            "logging": {"logRolloutLogprobDiff": True},
        },
    }


def test_unknown_keys_are_reported_with_their_line(tmp_path: Path) -> None:
    files = write(tmp_path, '[queue]\nmax_size = 64\ncolour = "red"\n\n[extra]\nx = 1\n', '{\n "judge": {"top_k": 1}}')
    code, out, err = run("convert", *files)
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        f"{files[0]}:3: unknown key queue.colour; remove it",
        f"{files[0]}:5: unknown key extra; remove it",
        f"{files[1]}:2: unknown key judge.top_k; remove it",
    ]


def test_two_files_that_disagree_are_refused(tmp_path: Path) -> None:
    files = write(
        tmp_path, "[policy_serving]\nweight_sync_pause = true\n", '{"serving": {"pause_on_weight_sync": false}}'
    )
    code, _, err = run("convert", *files)
    assert code == 1
    assert "serving.pause_on_weight_sync: is False but" in err
    assert "config.toml:2: policy_serving.weight_sync_pause says True" in err


def test_submission_disabled_becomes_a_hold_and_its_end_is_told(tmp_path: Path) -> None:
    settings = '{"serving": {"submission_enabled": false}, "api": {"base_url": "http://j/v1"}, "judge": {"model": "m"}}'
    code, out, err = run("convert", *write(tmp_path, "", settings))
    hold = yaml.safe_load(out)["spec"]["policyServing"]["hold"]
    assert hold["reason"] == "serving.submission_enabled is false"
    told = f"note: spec.policyServing.hold ends by itself at {hold['until']}; move `until` to hold longer\n"
    assert (code, err) == (0, told)


def test_value_out_of_range_names_field_value_and_limit(tmp_path: Path) -> None:
    settings = '{"api": {"base_url": "http://j/v1"}, "judge": {"model": "m"}}'
    code, _, err = run("convert", *write(tmp_path, "[policy_serving]\npause_timeout_sec = 0\n", settings))
    assert code == 1
    assert "spec.policyServing.pauseTimeoutSec: is 0: Input should be greater than or equal to 10" in err


def test_fault_of_the_resource_is_told_at_the_key_of_the_file(tmp_path: Path) -> None:
    settings = '{\n "api": {"base_url": "http://j/v1"},\n "judge": {"model": "m", "max_tokens": "many"}\n}'
    config, given = write(tmp_path, '[policy_serving]\nhost = "::"\nport = "high"\n', settings)
    code, _, err = run("convert", config, given)
    assert code == 1
    assert f"{config}:3: policy_serving.port: spec.policyServing.port: is 'high'" in err
    assert f"{given}:3: judge.max_tokens: spec.judge.maxTokens: is 'many'" in err


def test_missing_file_is_named() -> None:
    code, _, err = run("convert", "/nonexistent/config.toml", "/nonexistent/settings.json")
    assert code == 1
    assert "/nonexistent/config.toml: cannot be read: No such file or directory" in err


def test_broken_toml_names_its_line(tmp_path: Path) -> None:
    code, _, err = run("convert", *write(tmp_path, "[queue]\nmax_size =\n", "{}"))
    assert code == 1
    assert "not valid TOML" in err and "line 2" in err
