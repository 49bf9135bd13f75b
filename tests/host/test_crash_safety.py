"""The embedded cluster is killed, half started, and tripped over its own remains: the next `cluster-up` recovers.

    down ─▶ [look] ─▶ up killed at three points ─▶ up ─▶ write to a volume ─▶ kill -9 of everything ─▶ up
         ─▶ down ─▶ remains of a cluster nobody ended ─▶ up ─▶ down ─▶ [look: the same] ─▶ full disk ─▶ up

These tests take the one cluster down and up again, so nothing that uses it may run beside them. The rows run
in order: each begins where the one before ended, with the cluster up and the keeper's file on its volume.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from examples.quickstart.commands import Cluster, StepError
from openclaw_cluster import layout
from tests.e2e.running_training import until
from tests.host import host_state

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(bool(os.environ.get("KUBECONTEXT")), reason="KUBECONTEXT names somebody else's cluster"),
]

LAYOUT = layout.from_environment()
NAMESPACE = "openclaw-host"
KEEPER = """
import pathlib, secrets, time
kept = pathlib.Path("/kept/word")
if not kept.exists():
    kept.write_text(secrets.token_hex(8))
time.sleep(1e9)
"""
"""Writes a word once; a volume that came back empty would give another."""


# ------------------------------------------------------------ running the command


def command(name: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "openclaw_cluster", name],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **(env or {})},
    )


def must(name: str) -> str:
    done = command(name)
    assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
    return done.stdout


def up_killed_at(words: str) -> None:
    """`up` in a process group of its own, which gets SIGKILL as soon as its output has `words`."""
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "openclaw_cluster", "up"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        assert running.stdout is not None
        seen = next((line for line in running.stdout if words in line), None)
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    assert seen is not None, f"`up` never came to {words!r}"
    assert running.returncode == -signal.SIGKILL, f"`up` ended with {running.returncode} before it could be killed"


# ------------------------------------------------------------ what must survive


def _keeper_objects() -> list[dict[str, object]]:
    image = json.loads((LAYOUT.cache / "images" / "tags.json").read_text())["environment"]
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    container = {
        "name": "keeper",
        "image": image,
        "command": ["python3", "-c", KEEPER],
        "volumeMounts": [{"name": "kept", "mountPath": "/kept"}],
    }
    volume = {"name": "kept", "persistentVolumeClaim": {"claimName": "kept"}}
    pod = {"containers": [container], "volumes": [volume], "terminationGracePeriodSeconds": 0}
    labels = {"app": "keeper"}
    deployment = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        _object("v1", "PersistentVolumeClaim", "kept", claim),
        _object("apps/v1", "Deployment", "keeper", deployment),
    ]


def _object(version: str, kind: str, name: str, spec: Mapping[str, object]) -> dict[str, object]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


async def kept_word(cluster: Cluster) -> str:
    """The word on the volume, read through the API server, the kubelet and the container: all of them work."""
    found: list[str] = []

    async def missing() -> str | None:
        arguments = ("exec", "deployment/keeper", "--", "cat", "/kept/word")
        try:
            found.append(await cluster.run_kubectl("-n", NAMESPACE, *arguments, timeout_sec=30))
        except StepError as error:
            return str(error)
        return None if found[-1] else "an empty file"

    await until("the keeper's word", 180, missing, poll_sec=1)
    return found[-1]


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return Cluster.from_environment()


@pytest.fixture(scope="module", autouse=True)
def cluster_is_up_again() -> Iterator[None]:
    """Whatever fails here, who comes next finds a running cluster without our namespace."""
    yield
    command("up")
    subprocess.run(
        [*Cluster.from_environment().kubectl_line("delete", "namespace", NAMESPACE, "--ignore-not-found")],
        env=Cluster.from_environment().environment(),
        check=False,
        timeout=120,
    )


@pytest.fixture(scope="module")
def before() -> host_state.HostState:
    """The machine without its cluster."""
    must("down")
    return host_state.look()


# ------------------------------------------------------------ the rows


@pytest.mark.parametrize("words", ["Start the processes", "Wait for the node", "Reach a Service"])
def test_up_that_was_killed_is_finished_by_the_next_one(before: host_state.HostState, words: str) -> None:
    up_killed_at(words)
    assert host_state.look().beyond(before), "it was killed before it had done anything"
    must("up")
    twice = duplicates()
    assert not twice, f"run twice: {twice}"
    must("down")
    assert host_state.look().beyond(before) == {}


def duplicates() -> list[str]:
    """Programs that run twice. A child between its fork and its exec looks like one, but is gone at the second look."""
    before = host_state.command_lines()
    time.sleep(1.0)
    lasting = [argv for pid, argv in host_state.command_lines().items() if before.get(pid) == argv]
    lines = [argv for argv in lasting if host_state.of_a_node(argv)]
    names = [Path(argv.split(" ")[0]).name for argv in lines]
    single = host_state.PROGRAMS - {"containerd-shim-runc-v2"}
    return sorted(name for name in single if names.count(name) > 1)


async def test_pods_and_volumes_survive_the_kill_of_every_process(
    before: host_state.HostState, cluster: Cluster
) -> None:
    must("up")
    await cluster.apply(_keeper_objects())
    word = await kept_word(cluster)
    kill_everything()
    left = host_state.look()
    assert not left.processes, f"not killed: {left.processes}"
    assert left.mounts - before.mounts, "nothing was left behind, so nothing is shown here"
    must("up")
    assert await kept_word(cluster) == word


def kill_everything() -> None:
    """As when the power goes: no process of the node or of a pod gets to say a word."""
    deadline = time.monotonic() + 20
    while found := node_and_pod_pids():
        assert time.monotonic() < deadline, f"processes that do not die: {found}"
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


def node_and_pod_pids() -> set[int]:
    """Of the node, by name; of pods, by their control group."""
    ours = {pid for pid, argv in host_state.command_lines().items() if host_state.of_a_node(argv)}
    return ours | {pid for pid in host_state.command_lines() if "/openclaw/" in _cgroup(pid)}


def _cgroup(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cgroup").read_text()
    return ""


async def test_pods_and_volumes_survive_down_and_up(before: host_state.HostState, cluster: Cluster) -> None:
    must("up")
    word = await kept_word(cluster)
    must("down")
    assert host_state.look().beyond(before) == {}
    must("up")
    assert await kept_word(cluster) == word


async def test_remains_of_a_cluster_that_nobody_ended_are_no_obstacle(
    before: host_state.HostState, cluster: Cluster
) -> None:
    must("up")
    word = await kept_word(cluster)
    must("down")
    leave_remains()
    must("up")
    assert await kept_word(cluster) == word
    assert not [point for point in host_state.look().mounts if "left-behind" in point]
    must("down")
    if "table ip filter {" not in before.packet_filter:
        drop_filter_table()
    assert host_state.look().beyond(before) == {}
    must("up")


def drop_filter_table() -> None:
    """The remains' own `iptables` made it before `up` noted what was there; it holds no rule."""
    subprocess.run(["nft", "delete", "table", "ip", "filter"], check=True, timeout=30)


def leave_remains() -> None:
    """A kubelet's mount, a bind under it, a dead supervisor's pid file, half a bridge, rules and a set of a proxy."""
    kubelet, run = LAYOUT.kubelet / "pods" / "left-behind", LAYOUT.run
    run.mkdir(parents=True, exist_ok=True)
    LAYOUT.supervisor_pid.write_text("1\n")
    (LAYOUT.run / "containerd.sock").write_text("not a socket")
    for line in (
        f"mkdir -p {kubelet}/tmp {run}/left-behind",
        f"mount -t tmpfs -o size=1m left {kubelet}/tmp",
        f"mount --bind {kubelet}/tmp {run}/left-behind",
        "ip link add openclaw0 type bridge",
        "iptables -N KUBE-LEFT",
        "iptables -I FORWARD -j KUBE-LEFT",
        "ipset create KUBE-LEFT hash:ip",
    ):
        subprocess.run(line.split(), check=True, timeout=30)


# ------------------------------------------------------------ no space


@contextmanager
def small_disk(point: Path, options: str) -> Iterator[dict[str, str]]:
    """A file system of its own for the cache; yields the environment that names it."""
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "small", str(point)], check=True, timeout=30)
    try:
        yield {"XDG_CACHE_HOME": str(point)}
    finally:
        subprocess.run(["umount", "--lazy", str(point)], check=True, timeout=30)


def test_disk_too_small_is_said_in_one_sentence_before_anything_starts(
    before: host_state.HostState, tmp_path: Path
) -> None:
    must("down")
    with small_disk(tmp_path / "small", "size=64m") as env:
        done = command("up", env)
    assert done.returncode == 1
    assert "needs 45 GB of free disk; there are 0 GB" in done.stdout
    assert "KUBECONTEXT=" in done.stdout and len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert host_state.look().beyond(before) == {}


def test_disk_that_fills_up_on_the_way_is_named_and_up_goes_on_after_it(
    before: host_state.HostState, tmp_path: Path
) -> None:
    """Sixty files are all this disk takes: the certificates fit, the rest does not."""
    must("down")
    with small_disk(tmp_path / "full", "size=6g,nr_inodes=60") as env:
        ours = tmp_path / "full" / "openclaw-training"
        (ours / "cluster").mkdir(parents=True)
        (ours / "bin").symlink_to(LAYOUT.binaries)
        (ours / "cluster" / "kubeconfig").write_text("")  # as after an earlier run: nothing is cold
        done = command("up", env)
        assert done.returncode == 1
        said = " ".join(done.stdout.split())
        assert f"The disk of {ours} is full" in said and "make cluster-up" in said, done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr
        assert command("down", env).returncode == 0
    assert host_state.look().beyond(before) == {}
    must("up")
