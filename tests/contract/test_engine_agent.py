"""The engine container as the operator runs it: real SGLang under the real sync agent, in a restricted pod."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest

from openclaw_core import names
from openclaw_core.wire import AgentState, Prepared, Synced
from openclaw_engine import command
from tests.contract import engine_pod
from tests.contract.engine_pod import EnginePod

pytestmark = [pytest.mark.contract, pytest.mark.timeout(600)]

TOKEN = {"Authorization": f"Bearer {engine_pod.AGENT_TOKEN}"}
CHAT = {"model": "policy", "messages": [{"role": "user", "content": "Hello"}], "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def pod() -> Iterator[EnginePod]:
    """The container with the target v1, which SGLang loads first."""
    with engine_pod.namespace() as space:
        engine_pod.apply_agent_config(space, engine_pod.cpu_config())
        with engine_pod.with_agent(space, target="v1") as made:
            yield made


class Client:
    """Orders to the agent and chats with SGLang."""

    def __init__(self, session: aiohttp.ClientSession, pod: EnginePod) -> None:
        self._session, self._pod = session, pod

    async def order(self, path: str, **body: Any) -> tuple[int, Any]:
        async with self._session.post(self._pod.agent + path, json=body, headers=TOKEN) as answer:
            return answer.status, await answer.json()

    async def sync(self, version: str, epoch: int, deadline: float = 60.0) -> Synced:
        status, answer = await self.order("/sync", epoch=epoch, version=version, deadline_sec=deadline)
        assert status == 200, answer
        return Synced.model_validate(answer)

    async def prepare(self, version: str) -> Prepared:
        return Prepared.model_validate((await self.order("/prepare", version=version))[1])

    async def state(self) -> AgentState:
        async with self._session.get(self._pod.agent + "/state", headers=TOKEN) as answer:
            return AgentState.model_validate(await answer.json())

    async def checked_state(self) -> AgentState:
        """The state once the checksum of the loaded version is known."""
        async with asyncio.timeout(60):
            while (state := await self.state()).checksum is None:  # noqa: ASYNC110 - it lies behind HTTP
                await asyncio.sleep(0.1)
        return state

    async def sglang(self, path: str) -> tuple[int, Any]:
        async with self._session.get(self._pod.sglang + path) as answer:
            return answer.status, await answer.json() if answer.content_type.endswith("json") else None

    async def words(self) -> str:
        return str((await self.chat(max_tokens=12))["choices"][0]["message"]["content"])

    async def chat(self, **body: Any) -> Any:
        async with self._session.post(self._pod.sglang + "/v1/chat/completions", json=CHAT | body) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()


@pytest.fixture
async def client(pod: EnginePod) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as session:
        yield Client(session, pod)


@pytest.fixture
def versions(pod: EnginePod) -> dict[str, str]:
    return pod.versions()


async def test_engine_starts_at_its_target(client: Client, versions: dict[str, str], pod: EnginePod) -> None:
    state = await client.state()
    assert (state.version, state.target, state.ready) == (versions["v1"], versions["v1"], True)
    assert state.sglang_version == "0.5.23"
    assert (await client.sglang("/model_info"))[1]["model_path"] == f"{names.WEIGHTS_DIR}/v1"
    assert (await client.chat(max_tokens=4))["metadata"]["weight_version"] == versions["v1"]
    assert pod.seconds_to_ready < 300


async def test_prepare_tells_a_whole_version_from_a_damaged_one(client: Client, versions: dict[str, str]) -> None:
    assert (await client.prepare(versions["v2"])).ready
    damaged = await client.prepare(versions["v4"])
    assert not damaged.ready and "does not match the hash" in str(damaged.error)


async def test_sync_moves_a_running_turn_to_the_new_version(client: Client, versions: dict[str, str]) -> None:
    before = await client.checked_state()
    turn = asyncio.create_task(client.chat(max_tokens=800, return_meta_info=True))
    await asyncio.sleep(0.5)
    synced = await client.sync(versions["v2"], epoch=1)
    assert synced.ok and synced.version == versions["v2"]
    assert 0 < synced.update_sec < synced.pause_sec < 10
    spans = (await turn)["choices"][0]["meta_info"]["weight_versions"]
    assert [span["version"] for span in spans] == [before.version, versions["v2"]]
    after = await client.checked_state()
    assert after.version == versions["v2"] and after.checksum != before.checksum
    assert not after.paused and (await client.sglang("/ready"))[0] == 200


async def test_version_with_the_same_weights_keeps_the_checksum(client: Client, versions: dict[str, str]) -> None:
    await client.sync(versions["v2"], epoch=2)
    before = await client.checked_state()
    assert (await client.sync(versions["v3"], epoch=2)).ok
    assert (await client.checked_state()).checksum == before.checksum


async def test_damaged_version_is_refused_without_a_pause(client: Client, versions: dict[str, str]) -> None:
    synced = await client.sync(versions["v4"], epoch=3)
    assert not synced.ok and synced.pause_sec == 0
    assert (await client.sglang("/ready"))[0] == 200


async def test_base_can_be_loaded_again(client: Client) -> None:
    synced = await client.sync("0-00000000", epoch=4)
    assert synced.ok and synced.version == "0-00000000"


async def test_epoch_from_the_past_is_refused(client: Client, versions: dict[str, str]) -> None:
    await client.sync(versions["v1"], epoch=9)
    status, answer = await client.order("/sync", epoch=8, version=versions["v2"], deadline_sec=10)
    assert (status, answer["error"]["code"]) == (409, "stale_epoch")


async def test_deadline_that_is_too_short_leaves_the_engine_serving(client: Client, versions: dict[str, str]) -> None:
    before = (await client.state()).version
    synced = await client.sync(versions["v2"], epoch=10, deadline=0.002)
    assert not synced.ok
    assert synced.version in (before, versions["v2"])
    assert (await client.sglang("/ready"))[0] == 200
    assert (await client.chat(max_tokens=2))["usage"]["completion_tokens"] == 2


async def test_admin_key_is_on_no_command_line_and_in_no_answer(client: Client, pod: EnginePod) -> None:
    _, info = await client.sglang("/server_info")
    assert info.get("admin_api_key") is None
    shown = pod.execute("sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "openclaw_engine.launch" in shown and "admin" not in shown
    environments = pod.execute("sh", "-c", f"cat /proc/{_child(pod)}/environ | tr '\\0' ' '")
    assert "SGLANG_USE_CPU_ENGINE" in environments and engine_pod.AGENT_TOKEN not in environments


async def test_static_objects_are_left_out_of_garbage_collections(pod: EnginePod) -> None:
    said = pod.log()
    assert "The server is fired up" in said
    assert "freeze_gc failed" not in said and "not frozen" not in said, "SGLang's order to itself was refused"


async def test_command_lines_parse_with_sglangs_own_parser(pod: EnginePod) -> None:
    check = "\n".join(
        (
            "import argparse, json, sys",
            "from sglang.srt.server_args import ServerArgs",
            "parser = argparse.ArgumentParser(); ServerArgs.add_cli_args(parser)",
            "found = [vars(parser.parse_args(line)) for line in json.loads(sys.argv[1])]",
            "keys = ('model_path', 'weight_version', 'port', 'tp_size', 'sampling_defaults', 'enable_metrics')",
            "print(json.dumps([{key: one[key] for key in keys} for one in found]))",
        )
    )
    configs = [engine_pod.cpu_config(), engine_pod.cpu_config(device="cuda", tensorParallelSize=4)]
    lines = [command.arguments(config, command.Weights("/m", "3-0a1b2c3d", "main")) for config in configs]
    parsed = json.loads(pod.execute("python3", "-c", check, json.dumps(lines)).splitlines()[-1])
    common = {"model_path": "/m", "weight_version": "3-0a1b2c3d", "port": 8000, "sampling_defaults": "openai"}
    assert parsed == [common | {"tp_size": size, "enable_metrics": True} for size in (1, 4)]
    with pytest.raises(engine_pod.ClusterError, match="exit code 2"):
        pod.execute("python3", "-c", check, json.dumps([["--model-path", "/m", "--no-such-flag"]]))


async def test_prepared_version_is_exchanged_and_another_one_is_read(client: Client, versions: dict[str, str]) -> None:
    await client.sync(versions["v1"], epoch=20)
    checksums, words = {"v1": (await client.checked_state()).checksum}, {"v1": await client.words()}
    serving = "v1"
    for epoch, name in enumerate(("v2", "v1", "v2", "v1"), start=21):
        assert (await client.prepare(versions[name])).ready
        assert await client.words() == words[serving], "reading ahead leaves alone what serves"
        synced = await client.sync(versions[name], epoch)
        assert (synced.ok, synced.staged) == (True, True), synced
        checksum, said, serving = (await client.checked_state()).checksum, await client.words(), name
        assert (checksums.setdefault(name, checksum), words.setdefault(name, said)) == (checksum, said)
    assert checksums["v1"] != checksums["v2"] and words["v1"] != words["v2"]
    synced = await client.sync(versions["v2"], epoch=30)
    assert (synced.ok, synced.staged) == (True, False), "nobody prepared it"
    assert (await client.checked_state()).checksum == checksums["v2"], "the same weights, read in the pause or ahead"


async def test_engine_that_is_killed_comes_back_at_the_target(
    client: Client, pod: EnginePod, versions: dict[str, str]
) -> None:
    await client.sync("0-00000000", epoch=40)
    pod.execute("sh", "-c", f"kill -9 {_child(pod)}")
    await asyncio.to_thread(pod.wait_restarted)
    found = json.loads(pod.execute("python3", "-c", _STATE))
    assert (found["version"], found["ready"]) == (versions["v1"], True)


def _child(pod: EnginePod) -> str:
    """Process id of SGLang: the agent is process 1 and starts nothing else."""
    return pod.execute("cat", "/proc/1/task/1/children").split()[0]


_STATE = (
    "import os, urllib.request as u; "
    f"r = u.Request('http://127.0.0.1:{names.PORT_AGENT}/state', "
    f"headers={{'Authorization': 'Bearer ' + os.environ['{names.ENV_AGENT_TOKEN}']}}); "
    "print(u.urlopen(r, timeout=10).read().decode())"
)
