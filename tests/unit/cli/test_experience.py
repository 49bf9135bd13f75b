"""`openclaw export` and `openclaw erase` against a gateway that runs, through a URL and through kubectl."""

import asyncio
import base64
import json
import os
import socket
import threading

import pytest
from click.testing import CliRunner
from pyarrow import parquet

from openclaw_cli.main import main
from openclaw_core import names
from tests.fakes.engine import FakeEngine
from tests.unit.gateway.running import TOKEN, conversation, running


@pytest.fixture
async def gateway():
    """Two sessions: `a` waits for its judge, `b` for its next state."""
    async with FakeEngine(reply="Hello") as engine, running(engine) as started:
        await started.chat("Hi", session="a")
        await started.post(conversation("Hi", "Hello", "thänks"), session="a")
        await started.chat("Hi", session="b")
        yield started


async def run(*arguments, **environ):
    environ = {names.ENV_GATEWAY_TOKEN: TOKEN} | environ
    return await asyncio.to_thread(CliRunner(env=environ).invoke, main, arguments)


async def test_export_is_json_lines(gateway):
    result = await run("export", "demo", "--url", gateway.internal_url)
    assert result.exit_code == 0, result.output
    turns = [json.loads(line) for line in result.output.splitlines()]
    assert [(turn["session"], turn["state"]) for turn in turns] == [
        ("a", "judge"),
        ("a", "next_state"),
        ("b", "next_state"),
    ]


async def test_export_as_parquet_has_the_same_turns(gateway, tmp_path):
    file = tmp_path / "turns.parquet"
    result = await run("export", "demo", "--url", gateway.internal_url, "--format", "parquet", "-o", str(file))
    assert result.exit_code == 0, result.output
    turn = parquet.read_table(file).to_pylist()[0]
    assert json.loads(turn["next_state"]) == [{"role": "user", "content": "thänks"}]
    assert len(turn["output_ids"]) == len(turn["rollout_logprobs"]) > 0
    assert turn["sampling"]["temperature"] == 1.0
    assert [file.name for file in tmp_path.iterdir()] == ["turns.parquet"]


async def test_erased_session_is_gone_from_the_next_export(gateway):
    result = await run("erase", "demo", "--url", gateway.internal_url, "--session", "a", "--yes")
    assert (result.exit_code, result.output) == (0, "erased 2 turns\n")
    left = await run("export", "demo", "--url", gateway.internal_url)
    assert [json.loads(line)["session"] for line in left.output.splitlines()] == ["b"]
    again = await run("erase", "demo", "--url", gateway.internal_url, "--session", "a", "--yes")
    assert again.exit_code == 1 and "no session 'a'" in again.output


def asked(tmp_path):
    return (tmp_path / "asked").read_text().splitlines()


async def test_kubectl_forwards_the_port_and_brings_the_token(gateway, tmp_path):
    port = gateway.internal_url.rpartition(":")[2]
    token = base64.b64encode(TOKEN.encode()).decode()
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(
        f"""#!/bin/sh
echo "$@" >> {tmp_path}/asked
case "$*" in
*"get secret demo-internal"*) printf %s {token} ;;
*port-forward*) echo "Forwarding from 127.0.0.1:{port} -> 30001"; exec sleep 60 ;;
esac
"""
    )
    kubectl.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", names.ENV_GATEWAY_TOKEN: ""}
    result = await run("export", "demo", "-n", "rl", "--state", "judge", **environ)
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["session"] == "a"
    assert asked(tmp_path) == [
        "--namespace=rl get openclawtrainings.openclawrl.io demo -o name",
        "--namespace=rl get secret demo-internal -o jsonpath={.data.gateway}",
        "--namespace=rl port-forward --address=127.0.0.1 deploy/demo-gateway :30001",
    ]


async def test_training_that_does_not_exist_is_named_and_not_its_secret(tmp_path):
    kubectl = tmp_path / "kubectl"
    kubectl.write_text('#!/bin/sh\nshift; echo "Error from server (NotFound): $2 \\"$3\\" not found" >&2; exit 1\n')
    kubectl.chmod(0o755)
    result = await run("export", "nosuch", "-n", "rl", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert result.exit_code == 1
    assert 'openclawtrainings.openclawrl.io "nosuch" not found' in result.output


@pytest.mark.parametrize(
    ("token", "url", "said"),
    [
        ("", None, names.ENV_GATEWAY_TOKEN),
        ("wrong", None, "401"),
        (TOKEN, "http://127.0.0.1:9", "cannot be reached"),
    ],
)
async def test_fault_is_named(gateway, token, url, said):
    result = await run("export", "demo", "--url", url or gateway.internal_url, **{names.ENV_GATEWAY_TOKEN: token})
    assert result.exit_code == 1
    assert said in result.output


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
async def test_export_that_is_cut_off_leaves_no_file(tmp_path, kind):
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=half_an_answer, args=(server,), daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        result = await run("export", "demo", "--url", url, "--format", kind, "-o", str(tmp_path / "turns"))
    assert result.exit_code == 1
    assert "cut off" in result.output
    assert list(tmp_path.iterdir()) == []


def half_an_answer(server):
    connection, _ = server.accept()
    with connection:
        connection.recv(65536)
        line = b'{"id":1,"messages":null,"response":null,"next_state":null}\n'
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(line), line))
