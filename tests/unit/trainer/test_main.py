"""The process as the operator starts it: what it refuses, what it serves, how it says why it died."""

import asyncio
import socket
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from openclaw_core import tasks
from openclaw_core.config.components import ConfigError, TrainerConfig
from openclaw_core.config.model import HuggingFace, Model
from openclaw_core.config.policy_training import PolicyTraining
from openclaw_core.config.queue_and_storage import Logging
from openclaw_core.wire import TrainerState
from openclaw_trainer import base_model, main, state_server
from openclaw_trainer.snapshot import CheckpointMismatchError
from openclaw_trainer.state import State
from openclaw_trainer.world import World
from tests.fakes.sample_store import TOKEN, SampleStore, serving


def _config(training: PolicyTraining, path: str = "base", url: str = "http://gateway") -> TrainerConfig:
    return TrainerConfig(
        training="demo",
        namespace="space",
        gateway_url=url,
        model=Model(path=path),
        policy_training=training,
        logging=Logging(),
    )


@pytest.mark.parametrize("variable", ["HF_TOKEN", "WANDB_API_KEY"])
@pytest.mark.parametrize("value", ["", "changeme"])
def test_secret_that_cannot_be_meant_is_refused_by_name(variable: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{variable} is .*SecretRef"):
        main.refuse_placeholders({variable: value})
    main.refuse_placeholders({})


def test_token_of_the_gateway_is_needed() -> None:
    with pytest.raises(ConfigError, match="OPENCLAW_GATEWAY_TOKEN is empty"):
        main.gateway_token({})


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"engine": "megatron"}, "engine"),
        ({"method": "opd"}, "method"),
    ],
)
def test_setting_the_trainer_does_not_implement_is_refused_by_name(
    training: PolicyTraining, change: dict[str, Any], key: str
) -> None:
    with pytest.raises(ConfigError, match=key):
        main.refuse_unsupported(training.model_copy(update=change))
    main.refuse_unsupported(training)


PODS = {"OPENCLAW_NODE_RANK": "1", "OPENCLAW_RENDEZVOUS": "demo-trainer-0.demo-ranks.lab.svc:29500"}


def test_pod_of_several_starts_torchrun_with_its_number_and_the_meeting_point() -> None:
    line = main.torchrun(8, 2, PODS)
    assert line[1:-2] == [
        "-m", "torch.distributed.run", "--nnodes=2", "--node-rank=1",
        "--master-addr=demo-trainer-0.demo-ranks.lab.svc", "--master-port=29500", "--nproc-per-node=8",
    ]  # fmt: skip
    assert "--standalone" in main.torchrun(8, 1, {})


@pytest.mark.parametrize("name", sorted(PODS))
def test_pod_that_cannot_find_the_others_says_what_is_missing(name: str) -> None:
    with pytest.raises(ConfigError, match=f"policyTraining.nodes is 2 but {name} is not set"):
        main.torchrun(1, 2, {key: value for key, value in PODS.items() if key != name})


async def test_follower_answers_probes_and_nothing_else() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    state_server.serve_follower(port)
    async with aiohttp.ClientSession() as client:
        for path, status in {"/healthz": 200, "/readyz": 200, "/state": 404}.items():
            async with client.get(f"http://127.0.0.1:{port}{path}") as response:
                assert response.status == status


def test_missing_token_is_named(tmp_path: Path, training: PolicyTraining, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config.json"
    file.write_text(_config(training).model_dump_json(by_alias=True))
    monkeypatch.setenv("OPENCLAW_CONFIG", str(file))
    monkeypatch.delenv("OPENCLAW_GATEWAY_TOKEN", raising=False)
    monkeypatch.setattr("openclaw_core.logs.configure", lambda *_: None)
    with pytest.raises(ConfigError, match="OPENCLAW_GATEWAY_TOKEN"):
        main.main()


def test_base_model_is_found_on_the_volume_or_in_the_image(tmp_path: Path, base: Path) -> None:
    assert base_model.locate(Model(path=base.name), base.parent) == base
    assert base_model.locate(Model(path=str(base)), tmp_path) == base


def test_absent_base_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.path 'base'"):
        base_model.locate(Model(path="base"), tmp_path)


def test_repository_is_fetched_at_its_revision(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[str, str]] = []
    monkeypatch.setattr(
        base_model, "snapshot_download", lambda repo, revision: asked.append((repo, revision)) or str(tmp_path)
    )
    model = Model(hugging_face=HuggingFace(repo="org/model", revision="abc"))
    assert base_model.locate(model, tmp_path / "unused") == tmp_path
    assert asked == [("org/model", "abc")]


async def test_state_server_tells_phase_state_and_metrics() -> None:
    state = State()
    async with TestServer(state_server.build(state)) as server, aiohttp.ClientSession() as client:

        async def get(path: str) -> tuple[int, str]:
            async with client.get(server.make_url(path)) as response:
                return response.status, await response.text()

        assert (await get("/healthz"))[0] == 200
        assert (await get("/readyz"))[0] == 503
        state.numbers.phase = "waiting"
        assert (await get("/readyz"))[0] == 200
        assert TrainerState.model_validate_json((await get("/state"))[1]) == state.snapshot()
        assert "openclawrl_train_step" in (await get("/metrics"))[1]


async def test_failure_is_kept_in_the_state_and_raised(
    tmp_path: Path, training: PolicyTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCLAW_KUBERNETES", "off")
    monkeypatch.setenv("OPENCLAW_WEIGHTS_DIR", str(tmp_path))
    monkeypatch.setattr(base_model, "present", AsyncMock())  # the wait for it has its own tests
    state = State()
    with pytest.raises(ConfigError):
        await main.train(_config(training), TOKEN, state, World())
    assert state.snapshot().phase == "failed" and "no model at" in (state.snapshot().error or "")


class Replacing(SampleStore):
    """Another trainer comes right after this one asked for the epoch."""

    async def stats(self, request: web.Request) -> web.Response:
        answer = await super().stats(request)
        self.epoch = 9
        return answer


async def test_trainer_started_from_its_configuration_reaches_the_gateway(
    tmp_path: Path, base: Path, training: PolicyTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCLAW_KUBERNETES", "off")
    monkeypatch.setenv("OPENCLAW_WEIGHTS_DIR", str(tmp_path))
    store, state = Replacing(), State()
    store.epoch = 5
    async with serving(store) as url:
        with pytest.raises(RuntimeError, match="older trainer epoch"):
            await main.train(_config(training, str(base), url), TOKEN, state, World())
    assert store.calls["lease"] == 1 and state.snapshot().trainer_epoch == 6


@pytest.mark.parametrize("broadcasts", [True, False])
async def test_sender_runs_beside_a_trainer_that_broadcasts(
    training: PolicyTraining, monkeypatch: pytest.MonkeyPatch, broadcasts: bool
) -> None:
    kept: list[str] = []

    async def keep_running(device: str) -> None:
        kept.append(device)
        await asyncio.Event().wait()

    async def train(*_: object) -> None:
        await asyncio.sleep(0.01)

    async def serve(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(main, "train", train)
    monkeypatch.setattr(state_server, "serve", serve)
    monkeypatch.setattr("openclaw_trainer.sender_process.keep_running", keep_running)
    config = _config(training).model_copy(update={"broadcasts": broadcasts})
    with pytest.raises(tasks.LoopEndedError, match="training"):
        await main.run(config, TOKEN, World())
    assert kept == (["cpu"] if broadcasts else [])


def test_expected_end_is_told_in_one_line_and_fails(
    tmp_path: Path, training: PolicyTraining, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The container's last line is what the operator shows of a trainer that keeps ending."""

    async def mismatched(*_: object) -> None:
        raise CheckpointMismatchError("q_proj is 8×32 in the newest checkpoint and 4×32 by the spec")

    file = tmp_path / "config.json"
    file.write_text(_config(training).model_dump_json(by_alias=True))
    monkeypatch.setenv("OPENCLAW_CONFIG", str(file))
    monkeypatch.setenv("OPENCLAW_GATEWAY_TOKEN", TOKEN)
    monkeypatch.setattr("openclaw_core.logs.configure", lambda *_: None)
    monkeypatch.setattr(main, "run", mismatched)
    with pytest.raises(SystemExit) as end:
        main.main()
    assert end.value.code == 1
    assert caplog.messages[-1].startswith("the trainer ends: q_proj is 8×32")
