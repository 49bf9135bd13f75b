"""Opted-out turns: a marker in them is searched in the database's bytes, the log, the metrics and what a judge gets."""

import re
from typing import Any

import anthropic
import openai
import pytest

from openclaw_core import wire
from tests.contract.gateway.gateway_process import KEY, GatewayProcess
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


@pytest.mark.parametrize("knobs", [Knobs(status=400), Knobs(status=500), Knobs(cut_after=3), Knobs(error_after=3)])
async def test_failures_do_not_log_it_either(gateway: GatewayProcess, engine: FakeEngine, knobs: Knobs) -> None:
    engine.knobs = knobs
    with pytest.raises(openai.APIError):
        await stream_openai(gateway, words(MARKER), **OUT)
    kept = await everything_kept(gateway)
    assert MARKER not in kept and not re.search("marker-wkjy", kept)
