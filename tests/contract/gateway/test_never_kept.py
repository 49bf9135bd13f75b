"""Opted-out turns: a marker in them is searched in the database's bytes, the log, the metrics, what a judge is given
and what it sends on to its endpoint."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from aiohttp import web

from openclaw_core import names, wire
from openclaw_core.config.components import JudgeConfig
from tests.contract.gateway.gateway_process import KEY, READY_SEC, TOKEN, GatewayProcess
from tests.fakes.engine import FakeEngine, Knobs

pytestmark = [pytest.mark.contract, pytest.mark.timeout(300)]

MARKER, ANSWERED = "marker-qzxv-of-the-client", "marker-wkjy-of-the-engine"
OUT = {"X-Openclaw-No-Train": "1"}


@pytest.fixture
def said() -> str:
    return ANSWERED


async def everything_kept(gateway: GatewayProcess) -> str:
    """All the gateway has of its turns, the judge's and trainer's share included."""
    request = wire.LeaseTurns(worker="suite", max_turns=100, lease_sec=60)
    judged = await gateway.internal("/internal/turns/lease", request)
    async with gateway.http.get(f"{gateway.url}/metrics") as response:
        metrics = await response.text()
    stats = await gateway.internal("/internal/stats")
    return "\n".join([gateway.database().decode(errors="replace"), gateway.log, metrics, str(stats), str(judged)])


def words(text: str) -> Any:
    return [{"role": "user", "content": text}]


async def stream_openai(gateway: GatewayProcess, messages: Any, **headers: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, default_headers=headers) as client:
        stream = await client.chat.completions.create(model="policy", messages=messages, stream=True)
        [chunk async for chunk in stream]


async def test_opted_out_turns_leave_no_word_behind_whatever_the_api(gateway: GatewayProcess) -> None:
    await stream_openai(gateway, words(MARKER), **OUT)
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, default_headers=OUT) as client:
        await client.chat.completions.create(model="policy", messages=words(MARKER), user=MARKER)
        await client.completions.create(model="policy", prompt=MARKER)
    async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key=KEY, default_headers=OUT) as other:
        await other.messages.create(model="m", max_tokens=99, messages=words(MARKER), metadata={"user_id": MARKER})
        async with other.messages.stream(model="m", max_tokens=99, messages=words(MARKER)) as stream:
            await stream.get_final_text()
        await other.messages.count_tokens(model="m", messages=words(MARKER))
    kept = await everything_kept(gateway)
    assert MARKER not in kept and ANSWERED not in kept
    assert (await gateway.stats()).untracked == {"opt_out": 4, "completion": 1}


async def test_session_stays_out_while_the_words_are_in_it_even_without_the_header(gateway: GatewayProcess) -> None:
    history = [*words(MARKER), {"role": "assistant", "content": ANSWERED}, *words("go on")]
    await stream_openai(gateway, words(MARKER), **OUT)
    await stream_openai(gateway, history)
    kept = await everything_kept(gateway)
    assert MARKER not in kept and ANSWERED not in kept
    assert (await gateway.stats()).recorded == 0


async def test_it_is_no_next_state_of_the_turn_before(gateway: GatewayProcess, engine: FakeEngine) -> None:
    engine.reply = "plain answer"
    await stream_openai(gateway, words("plain question"), **{"X-Session-Id": "s"})
    engine.reply = ANSWERED
    history = [*words("plain question"), {"role": "assistant", "content": "plain answer"}, *words(MARKER)]
    await stream_openai(gateway, history, **{"X-Session-Id": "s"} | OUT)
    kept = await everything_kept(gateway)
    assert "plain question" in kept  # the search finds what is kept
    assert MARKER not in kept and ANSWERED not in kept


async def ask(gateway: GatewayProcess, messages: Any, *, prompt: str = "", **headers: str) -> None:
    """As a stock client does: the whole history, no session id."""
    system: Any = [{"role": "system", "content": prompt}] if prompt else []
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, default_headers=headers) as client:
        quick = client.with_options(max_retries=0)
        await quick.chat.completions.create(model="policy", messages=[*system, *messages])


async def begun(gateway: GatewayProcess, engine: FakeEngine) -> Any:
    """A recorded turn, and the history that goes on from it with the marker."""
    engine.reply = "plain answer"
    await ask(gateway, words("plain question"))
    engine.reply = ANSWERED
    return [*words("plain question"), said_by_engine("plain answer"), *words(MARKER)]


def said_by_engine(text: str) -> Any:
    return {"role": "assistant", "content": text}


async def nothing_is_kept_of(gateway: GatewayProcess, history: Any, **fields: Any) -> None:
    await ask(gateway, history, **fields)
    kept = await everything_kept(gateway)
    assert "plain question" in kept  # the search finds what is kept
    assert MARKER not in kept and ANSWERED not in kept
    assert (await gateway.stats()).recorded == 1


async def test_words_whose_turn_failed_are_not_kept_later(gateway: GatewayProcess, engine: FakeEngine) -> None:
    history = await begun(gateway, engine)
    engine.knobs = Knobs(status=500)
    with pytest.raises(openai.APIError):
        await ask(gateway, history, **OUT)
    engine.knobs = Knobs()
    await nothing_is_kept_of(gateway, [*history, *words("and now?")])


async def test_words_whose_turn_was_stopped_are_not_kept_later(gateway: GatewayProcess, engine: FakeEngine) -> None:
    history = await begun(gateway, engine)
    engine.knobs = Knobs(token_delay_sec=0.2)
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, default_headers=OUT) as client:
        stream = await client.chat.completions.create(model="policy", messages=history, stream=True)
        await anext(aiter(stream))
        await stream.close()
    engine.knobs = Knobs()
    await nothing_is_kept_of(gateway, [*history, said_by_engine(ANSWERED[:3]), *words("and now?")])


async def test_words_are_not_kept_under_another_system_prompt(gateway: GatewayProcess, engine: FakeEngine) -> None:
    history = await begun(gateway, engine)
    await ask(gateway, history, prompt="It is Monday.", **OUT)
    history += [said_by_engine(ANSWERED), *words("and now?")]
    await nothing_is_kept_of(gateway, history, prompt="It is Tuesday.")


async def test_words_are_not_kept_when_older_ones_are_gone(gateway: GatewayProcess, engine: FakeEngine) -> None:
    history = await begun(gateway, engine)
    await ask(gateway, history, **OUT)
    await nothing_is_kept_of(gateway, [*words(MARKER), said_by_engine(ANSWERED), *words("and now?")])


@pytest.mark.parametrize("stream", [False, True])
async def test_words_are_not_kept_with_any_choice(gateway: GatewayProcess, engine: FakeEngine, stream: bool) -> None:
    history = await begun(gateway, engine)
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, default_headers=OUT) as client:
        answer: Any = await client.chat.completions.create(model="policy", messages=history, n=2, stream=stream)
        said = [chunk async for chunk in answer] if stream else [answer]
    choices = [choice for part in said for choice in part.choices if choice.index == 1]
    second = "".join((choice.delta if stream else choice.message).content or "" for choice in choices)
    assert second == f"{ANSWERED} more"
    await nothing_is_kept_of(gateway, [*history[-1:], said_by_engine(second), *words("and now?")])


@pytest.mark.parametrize("knobs", [Knobs(status=400), Knobs(status=500), Knobs(cut_after=3), Knobs(error_after=3)])
async def test_failures_do_not_log_it_either(gateway: GatewayProcess, engine: FakeEngine, knobs: Knobs) -> None:
    engine.knobs = knobs
    with pytest.raises(openai.APIError):
        await stream_openai(gateway, words(MARKER), **OUT)
    kept = await everything_kept(gateway)
    assert MARKER not in kept and not re.search("marker-wkjy", kept)


@asynccontextmanager
async def judge_endpoint() -> AsyncIterator[tuple[str, list[str]]]:
    """A model that likes everything: its base URL, and the bodies it is sent."""
    sent: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        sent.append(await request.text())
        return web.json_response({"choices": [{"message": {"role": "assistant", "content": r"\boxed{1}"}}]})

    app = web.Application()
    app.add_routes([web.post("/v1/chat/completions", answer)])
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1", sent
    finally:
        await runner.cleanup()


@asynccontextmanager
async def judge_process(gateway: GatewayProcess, endpoint: str, directory: Path) -> AsyncIterator[Path]:
    """The judge as its container runs it, but for the port it is probed on; its log."""
    about = {"training": "suite", "namespace": "suite", "reward_judging": {}, "api": {}, "judge": {"model": "judge"}}
    config = JudgeConfig.model_validate(about | {"gateway_url": gateway.internal_url, "endpoint": endpoint})
    (directory / "judge.json").write_text(config.model_dump_json(by_alias=True))
    environment = {
        "PATH": os.environ["PATH"],
        names.ENV_CONFIG: str(directory / "judge.json"),
        names.ENV_GATEWAY_TOKEN: TOKEN,
    }
    program = (
        "import sys; from openclaw_core import names; names.PORT_JUDGE = 0; import openclaw_judge.__main__ as judge"
    )
    log = directory / "judge.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", f"{program}; sys.exit(judge.main())", env=environment, stdout=output, stderr=output
        )
    try:
        yield log
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_judge_sends_none_of_it_to_its_endpoint(
    gateway: GatewayProcess, engine: FakeEngine, tmp_path: Path
) -> None:
    """Among turns that are judged: one before it in its session, and one of another."""
    engine.reply = "plain answer"
    for session in ("s", "other"):
        history = words(f"question of {session}")
        await stream_openai(gateway, history, **{"X-Session-Id": session})
        history += [{"role": "assistant", "content": "plain answer"}, *words(f"next of {session}")]
        await stream_openai(gateway, history, **{"X-Session-Id": session})
    engine.reply = ANSWERED
    history = [*words("question of s"), {"role": "assistant", "content": "plain answer"}, *words("next of s")]
    history += [{"role": "assistant", "content": "plain answer"}, *words(MARKER)]
    await stream_openai(gateway, history, **{"X-Session-Id": "s"} | OUT)
    history += [{"role": "assistant", "content": ANSWERED}, *words("go on")]
    await stream_openai(gateway, history, **{"X-Session-Id": "s"})
    async with judge_endpoint() as (endpoint, sent), judge_process(gateway, endpoint, tmp_path) as log:
        async with asyncio.timeout(READY_SEC):
            while not sent:  # noqa: ASYNC110 - a process that starts has no event for it
                await asyncio.sleep(0.05)
        await gateway.settled(scores={"1": 2})
        told = "\n".join([*sent, log.read_text()])
    assert all(f"{part} of {session}" in told for part in ("question", "next") for session in ("s", "other"))
    assert MARKER not in told and ANSWERED not in told
