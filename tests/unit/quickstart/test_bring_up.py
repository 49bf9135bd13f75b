"""What the demo asks of kubectl and in which order, with a script in kubectl's place."""

import stat
from pathlib import Path

import pytest

from examples.quickstart import options
from examples.quickstart.bring_up import BringUp, read_tags
from examples.quickstart.commands import Cluster, StepError
from examples.quickstart.console import Clock
from openclaw_core import names

IMAGES = {name: f"r/openclaw-{name}:t" for name in ("operator", *names.COMPONENTS, "quickstart")}


def bring_up(folder: Path, script: str, *arguments: str) -> BringUp:
    kubectl = folder / "kubectl"
    kubectl.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$*" >> {folder}/calls\ncase "$*" in\n{script}\n*) cat >/dev/null;;\nesac\n'
    )
    kubectl.chmod(kubectl.stat().st_mode | stat.S_IXUSR)
    cluster = Cluster(str(kubectl), "helm", folder, kubeconfig=folder / "kubeconfig", context=None)
    found = BringUp(cluster, Clock(), options.parse(list(arguments)), judge_key=None)
    found.images = IMAGES
    return found


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


JOB_DONE = """*"job prepare-model"*) echo '{"status": {"succeeded": 1}}';;"""


async def test_previous_training_goes_pods_first_and_the_new_namespace_comes_before_what_is_in_it(
    tmp_path: Path,
) -> None:
    there = """*"get namespace"*) echo '{"kind": "Namespace"}';;"""
    await bring_up(tmp_path, f"{there}\n{JOB_DONE}", "--namespace=try")._fresh_namespace()
    verbs = [" ".join(call.split()[:4]) for call in calls(tmp_path)]
    assert verbs[:4] == [
        "get namespace try --ignore-not-found",
        "-n try delete openclawtrainings,deployments,jobs",
        "-n try wait --for=delete",
        "delete namespace try --wait=true",
    ]
    assert verbs[4].startswith("apply --server-side")
    assert verbs[5].startswith("-n try apply")


async def test_first_demo_deletes_nothing(tmp_path: Path) -> None:
    await bring_up(tmp_path, JOB_DONE)._fresh_namespace()
    assert not any("delete" in call for call in calls(tmp_path))


async def test_model_job_that_failed_shows_its_log(tmp_path: Path) -> None:
    failed = """*"job prepare-model"*) echo '{"status": {"conditions": [{"type": "Failed", "status": "True"}]}}';;
*" logs "*) echo "cp: cannot open /models";;"""
    with pytest.raises(StepError, match="cp: cannot open /models"):
        await bring_up(tmp_path, failed)._fresh_namespace()


async def test_blocked_training_is_shown_in_the_operators_words(tmp_path: Path) -> None:
    words = '"phase": "Blocked", "message": "Secret judge-api has no key api-key"'
    status = f"""*openclawtrainings*) echo '{{"status": {{{words}}}}}';;"""
    missing = await bring_up(tmp_path, status)._not_ready("quickstart", names.ENGINE)
    assert missing == "engine has no ready pod yet; Blocked: Secret judge-api has no key api-key"


async def test_training_counts_as_ready_only_at_its_current_generation(tmp_path: Path) -> None:
    old = """*openclawtrainings*) echo '{"metadata": {"generation": 2}, "status": {"observedGeneration": 1,
"conditions": [{"type": "Ready", "status": "True", "message": "all is well"}]}}';;"""
    assert await bring_up(tmp_path, old)._not_all_ready("quickstart") == "all is well"
    new = old.replace('"observedGeneration": 1', '"observedGeneration": 2')
    assert await bring_up(tmp_path, new)._not_all_ready("quickstart") is None


def test_missing_tags_say_how_to_get_images(tmp_path: Path) -> None:
    with pytest.raises(StepError, match="make images"):
        read_tags(Cluster("kubectl", "helm", tmp_path, kubeconfig=None, context=None))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--judge-url=https://j/v1"], "--judge-url needs --judge-key-env and --judge-model"),
        (
            ["--judge-url=https://j/v1", "--judge-model=m", "--judge-key-env=NO_SUCH_VARIABLE"],
            "the variable NO_SUCH_VARIABLE is empty",
        ),
    ],
)
def test_options_of_a_real_judge_must_be_complete(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options.parse(arguments)
    assert words in capsys.readouterr().err
