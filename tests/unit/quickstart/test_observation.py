"""The demo's reading loops against small HTTP servers: an API server's watch, an agent, SGLang, a trainer."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import aiohttp
import yaml
from aiohttp import web

from examples.quickstart.commands import Cluster
from examples.quickstart.evaluation import Examiner
from examples.quickstart.forwards import Forward
from examples.quickstart.observation import Observer
from openclaw_core import leases, names, wire
from openclaw_environment.chat import Chat
from openclaw_environment.journal import Journal
from openclaw_environment.tasks import TASKS

LEASE = "/apis/coordination.k8s.io/v1/namespaces/demo/leases"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(routes: dict[str, Handler]) -> AsyncIterator[str]:
    app = web.Application()
    for path, handler in routes.items():
        app.router.add_route("*", path, handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@asynccontextmanager
async def observer(server: str, folder: Path) -> AsyncIterator[Observer]:
    config = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    cluster = Cluster("kubectl", "helm", folder, kubeconfig=folder / "kubeconfig", context=None)
    async with aiohttp.ClientSession() as http:
        yield Observer(cluster, "demo", "quickstart", http)


def lease(epoch: int, version: int, *, held: bool) -> dict[str, Any]:
    hold = leases.Hold(holder="op", epoch=epoch, acquired_at=datetime.now(UTC), duration_sec=30) if held else None
    rendered = leases.render_weight_sync(leases.WeightSyncState(hold=hold, epoch=epoch))
    rendered["metadata"]["resourceVersion"] = str(version)
    return rendered


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - the loops under test signal nobody
            await asyncio.sleep(0.01)


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_lease_watch_goes_on_from_where_the_last_one_ended_and_lists_again_when_that_is_gone(
    tmp_path: Path,
) -> None:
    asked: list[str] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            asked.append("list")
            state = lease(0, 5, held=False) if len(asked) == 1 else lease(2, 40, held=False)
            return web.json_response(
                {"metadata": {"resourceVersion": "40" if len(asked) > 1 else "5"}, "items": [state]}
            )
        version = request.query["resourceVersion"]
        asked.append(f"watch {version}")
        events: list[dict[str, Any]] = []
        if version == "5":
            events = [{"type": "MODIFIED", "object": lease(1, 6, held=True)}]
        elif version == "6":
            events = [
                {"type": "MODIFIED", "object": lease(1, 7, held=False)},
                {"type": "MODIFIED", "object": lease(2, 8, held=True)},
                {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}},
            ]
        else:
            await asyncio.sleep(5)
        return web.Response(text="".join(json.dumps(event) + "\n" for event in events))

    async with serving({LEASE: handler}) as server, observer(server, tmp_path) as watching:
        task = asyncio.create_task(watching.watch_lease())
        await until(lambda: "watch 40" in asked)
        await stop(task)
    assert asked[:5] == ["list", "watch 5", "watch 6", "list", "watch 40"]
    log = watching.seen.windows
    assert [window.epoch for window in log.windows] == [1, 2]
    assert len(log.closed_milliseconds()) == 2
    assert log.unseen_epochs == 0


async def test_engine_is_believed_only_while_it_serves_and_says_its_own_version(tmp_path: Path) -> None:
    phases = iter(["syncing", "serving"])

    async def state(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer agent-token"
        phase = next(phases)
        found = wire.AgentState(
            version="3-0a0b0c0d",
            target=None,
            ready=True,
            paused=False,
            highest_epoch=3,
            phase=cast(Any, phase),
            checksum=f"sum-{phase}",
        )
        return web.Response(text=found.model_dump_json())

    async def server_info(_: web.Request) -> web.Response:
        return web.json_response({"version": "0.5.23"})

    class Ready:
        def is_ready(self) -> bool:
            return True

        def url(self, _: int) -> str:
            return server

    async with serving({"/state": state, "/server_info": server_info}) as server, observer(server, tmp_path) as looking:
        for _ in range(2):
            await looking._look_at("engine-0", cast(Forward, Ready()), "agent-token")
    assert looking.seen.engines.checksums == {"engine-0": {"3-0a0b0c0d": "sum-serving"}}
    assert looking.seen.engines.faults() == []
    assert looking.seen.serving == "3-0a0b0c0d"


async def test_trainer_that_is_away_for_a_moment_keeps_its_last_word(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("examples.quickstart.observation._EVERY_SEC", 0.01)
    calls = 0

    async def state(_: web.Request) -> web.Response:
        nonlocal calls
        calls += 1
        if calls != 1:
            return web.Response(status=503)
        return web.Response(
            text=wire.TrainerState(phase="training", step=4, version="4-0a0b0c0d", trainer_epoch=1).model_dump_json()
        )

    class Up:
        async def ready(self) -> None:
            return

        def url(self, port: int) -> str:
            assert port == names.PORT_TRAINER
            return server

    async with serving({"/state": state}) as server, observer(server, tmp_path) as reading:
        task = asyncio.create_task(reading.poll_trainer(cast(Forward, Up())))
        await until(lambda: calls >= 3)
        await stop(task)
    assert reading.seen.trainer is not None
    assert reading.seen.trainer.step == 4


async def test_examiner_asks_side_turns_again_when_one_breaks_off_and_counts_both(monkeypatch: Any) -> None:
    monkeypatch.setattr("examples.quickstart.evaluation._AGAIN_AFTER_SEC", 0.01)
    seen: list[tuple[str | None, dict[str, Any]]] = []

    async def chat(request: web.Request) -> web.Response:
        seen.append((request.headers.get("X-Turn-Type"), await request.json()))
        if len(seen) == 3:
            return web.json_response({"error": {"message": "no engine", "code": "no_engine"}}, status=502)
        question = seen[-1][1]["messages"][0]["content"].partition("?")[0].lower()
        return web.json_response({"choices": [{"message": {"content": f"Paris is {question}."}}]})

    task, journal = TASKS["short_statement"], Journal()
    async with serving({"/v1/chat/completions": chat}) as server, aiohttp.ClientSession() as http:
        examiner = Examiner(Chat(http, f"{server}/v1", journal), task, "smollm2")
        found = await examiner.held_out()
        quality = await examiner.quality()
    assert found.rate == 1.0 and len(found.answers) == len(task.held_out)
    assert 0 < quality < 1
    report = journal.report(stopped=True)
    assert (report.turns_ok, report.failed) == (len(task.held_out) + len(task.quality), 1)
    assert {turn_type for turn_type, _ in seen} == {"side"}
    temperatures = [body["temperature"] for _, body in seen]
    assert (temperatures.count(0.7), temperatures.count(0.0)) == (len(task.held_out) + 1, len(task.quality))
