"""kubectl as a child process, played by a small script: what it is told, and what happens when it dies or hangs."""

import asyncio
import stat
from pathlib import Path

import pytest

from examples.quickstart import manifests
from examples.quickstart.commands import Cluster, StepError, run
from examples.quickstart.forwards import forwarded


def cluster(folder: Path, script: str) -> Cluster:
    kubectl = folder / "kubectl"
    kubectl.write_text("#!/bin/sh\n" + script)
    kubectl.chmod(kubectl.stat().st_mode | stat.S_IXUSR)
    return Cluster(str(kubectl), "helm", folder, kubeconfig=folder / "kubeconfig", context=None)


async def test_command_that_fails_shows_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(StepError, match=r"kubectl get nothing failed: no such kind"):
        await cluster(tmp_path, "echo no such kind >&2; exit 1").run_kubectl("get", "nothing")


async def test_command_that_hangs_is_ended() -> None:
    with pytest.raises(StepError, match="did not end within 0 s"):
        await run(["sleep", "30"], {}, timeout_sec=0.1)


async def test_secret_reaches_kubectl_through_stdin_and_not_on_its_command_line(tmp_path: Path) -> None:
    script = f'echo "$@" > {tmp_path}/arguments; cat > {tmp_path}/stdin'
    await cluster(tmp_path, script).apply([manifests.judge_key("s3cr3t")], "somewhere")
    assert "s3cr3t" in (tmp_path / "stdin").read_text()
    assert "s3cr3t" not in (tmp_path / "arguments").read_text()


async def test_absent_object_is_empty(tmp_path: Path) -> None:
    assert await cluster(tmp_path, "exit 0").get("namespace", "none") == {}


async def test_forward_that_dies_comes_back_on_the_same_local_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("examples.quickstart.forwards._AGAIN_AFTER_SEC", 0.05)
    calls = tmp_path / "calls"
    script = (
        f'printf "%s\\n" "$*" >> {calls}\n'
        'echo "Forwarding from 127.0.0.1:45001 -> 8000"\necho "Forwarding from 127.0.0.1:45002 -> 8100"\n'
        f"if [ $(wc -l < {calls}) -lt 2 ]; then exit 1; fi; exec sleep 30\n"
    )
    async with forwarded(cluster(tmp_path, script), "demo", "pod/engine", 8000, 8100) as forward:
        await forward.ready(5)
        assert (forward.url(8000), forward.url(8100)) == ("http://127.0.0.1:45001", "http://127.0.0.1:45002")
        async with asyncio.timeout(5):
            while len(calls.read_text().splitlines()) < 2:  # noqa: ASYNC110 - a child process; nothing signals us
                await asyncio.sleep(0.02)
    first, second = calls.read_text().splitlines()
    assert first.endswith("pod/engine :8000 :8100")
    assert second.endswith("pod/engine 45001:8000 45002:8100")


async def test_forward_that_never_comes_up_is_a_failed_step(tmp_path: Path) -> None:
    async with forwarded(cluster(tmp_path, "sleep 0.05; exit 1"), "demo", "svc/x", 80) as forward:
        with pytest.raises(StepError, match="port-forward svc/x does not come up"):
            await forward.ready(0.3)


def test_cluster_of_an_existing_context_uses_the_users_kubeconfig() -> None:
    found = Cluster.from_environment({"HOME": "/home/u", "KUBECONTEXT": "prod"})
    assert found.kubeconfig is None
    assert found.kubectl_line("get", "pods")[1:] == ["--context", "prod", "get", "pods"]
    embedded = Cluster.from_environment({"HOME": "/home/u"})
    assert embedded.kubeconfig == Path("/home/u/.cache/openclaw-training/cluster/kubeconfig")
