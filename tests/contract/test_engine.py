"""What gateway and sync agent rely on in SGLang 0.5.23, checked against the real one and against our fake."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from openclaw_core import names
from tests.contract import engine_pod
from tests.fakes import weight_versions
from tests.fakes.engine import FakeEngine, Knobs

pytestmark = [pytest.mark.contract, pytest.mark.timeout(600)]

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is the capital of France?"}]
ADMIN = {"Authorization": f"Bearer {engine_pod.ADMIN_KEY}"}
TOKENS = 800
"""Of a long answer: a second or two on a quiet machine."""
IDS = {"return_input_ids_in_sglext": True, "return_output_ids_in_sglext": True}
LONG = {"ignore_eos": True, "max_tokens": TOKENS}
BASE = "0-00000000"


@dataclass
class Engine:
    """One engine under test: where it is, and which versions it can load."""

    kind: str
    url: str
    directory: str
    versions: dict[str, str]
    fake: FakeEngine | None = None
    session: aiohttp.ClientSession = field(init=False)

    async def get(self, path: str) -> tuple[int, Any]:
        async with self.session.get(self.url + path) as answer:
            return answer.status, await _content(answer)

    async def control(self, path: str, headers: dict[str, str] = ADMIN, **body: Any) -> tuple[int, Any]:
        async with self.session.post(self.url + path, json=body, headers=headers) as answer:
            return answer.status, await _content(answer)

    async def chat(self, **body: Any) -> tuple[int, Any]:
        request = {"model": "policy", "messages": MESSAGES, "temperature": 0, **body}
        async with self.session.post(self.url + "/v1/chat/completions", json=request) as answer:
            return answer.status, await _content(answer)

    async def stream(self, **body: Any) -> list[Any]:
        return [event async for event in self.events(**body)]

    async def events(self, **body: Any) -> Any:
        """Events of a stream as they arrive: parsed JSON, at last the string `[DONE]`."""
        request = {"model": "policy", "messages": MESSAGES, "temperature": 0, "stream": True, **body}
        async with self.session.post(self.url + "/v1/chat/completions", json=request) as answer:
            assert answer.status == 200, await answer.text()
            assert answer.content_type == "text/event-stream"
            async for line in answer.content:
                if line.startswith(b"data: "):
                    data = line[6:].strip()
                    yield "[DONE]" if data == b"[DONE]" else json.loads(data)

    async def update(self, name: str) -> tuple[int, Any]:
        directory, version = f"{self.directory}/{name}", self.versions[name]
        return await self.control("/update_weights_from_disk", model_path=directory, weight_version=version)

    async def model_info(self) -> Any:
        return (await self.get("/model_info"))[1]

    async def checksum(self) -> str:
        status, answer = await self.control("/weights_checker", action="checksum")
        assert status == 200
        return str(answer["per_engine_checksum"])


async def _content(answer: aiohttp.ClientResponse) -> Any:
    return await answer.json() if answer.content_type.endswith("json") else await answer.text()


@pytest.fixture(scope="module")
def real() -> Iterator[Engine]:
    with engine_pod.namespace() as space, engine_pod.sglang_alone(space) as pod:
        yield Engine("real", pod.sglang, names.WEIGHTS_DIR, pod.versions())


@asynccontextmanager
async def _fake(root: Path) -> Any:
    versions = {"base": BASE}
    (root / "base").mkdir()
    for number in (1, 2):
        files = {"model.safetensors": bytes([number])}
        versions[f"v{number}"] = str(weight_versions.write(root, number, files))
    async with FakeEngine(
        admin_key=engine_pod.ADMIN_KEY,
        reply="x" * 3000,
        model_path=str(root / "base"),
        knobs=Knobs(token_delay_sec=0.0005),
    ) as fake:
        yield Engine("fake", fake.url, str(root), versions, fake)


@pytest.fixture(params=["fake", "real"])
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """The engine, serving the base version, nothing paused."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        if request.param == "fake":
            async with _fake(tmp_path) as under_test:
                under_test.session = session
                yield under_test
            return
        under_test = request.getfixturevalue("real")
        under_test.session = session
        yield under_test
        await under_test.control("/continue_generation")
        await under_test.update("base")


# ---------------------------------------------------------------- identity


async def test_server_info_names_the_release_and_no_key(engine: Engine) -> None:
    status, info = await engine.get("/server_info")
    assert status == 200
    assert info["version"] == "0.5.23"
    assert engine_pod.ADMIN_KEY not in json.dumps(info)


async def test_model_info_carries_the_version(engine: Engine) -> None:
    info = await engine.model_info()
    assert info["weight_version"] == BASE
    assert info["is_generation"] is True
    assert info["model_path"]


async def test_models_lists_one(engine: Engine) -> None:
    _, listed = await engine.get("/v1/models")
    assert [card["object"] for card in listed["data"]] == ["model"]


async def test_loads_count_requests(engine: Engine) -> None:
    _, loads = await engine.get("/v1/loads?include=core")
    assert loads["loads"][0]["num_running_reqs"] == 0
    assert loads["loads"][0]["num_waiting_reqs"] == 0


# ---------------------------------------------------------------- chat


async def test_answer_carries_exact_ids_logprobs_and_version(engine: Engine) -> None:
    status, answer = await engine.chat(
        max_tokens=9, logprobs=True, return_token_ids=True, return_prompt_token_ids=True, return_meta_info=True
    )
    assert status == 200
    choice, usage = answer["choices"][0], answer["usage"]
    output = choice["response_token_ids"]
    assert len(choice["prompt_token_ids"]) == usage["prompt_tokens"]
    assert len(output) == usage["completion_tokens"] == len(choice["logprobs"]["content"]) <= 9
    triples = choice["meta_info"]["output_token_logprobs"]
    assert [token for _, token, _ in triples] == output
    assert [entry["logprob"] for entry in choice["logprobs"]["content"]] == [value for value, _, _ in triples]
    assert answer["metadata"]["weight_version"] == BASE
    assert answer["metadata"]["weight_versions"] == [{"version": BASE, "start": 0, "end": len(output)}]
    assert choice["message"]["role"] == "assistant"


async def test_answer_that_reaches_the_limit_says_length(engine: Engine) -> None:
    _, answer = await engine.chat(max_tokens=4, ignore_eos=True)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 4


async def test_answer_without_asking_carries_no_ids(engine: Engine) -> None:
    _, answer = await engine.chat(max_tokens=2)
    assert not {"response_token_ids", "meta_info"} & {k for k, v in answer["choices"][0].items() if v is not None}
    assert answer.get("sglext") is None


async def test_stream_gives_the_same_ids_in_an_extension_before_the_usage(engine: Engine) -> None:
    _, whole = await engine.chat(max_tokens=9, logprobs=True, return_token_ids=True)
    events = await engine.stream(max_tokens=9, logprobs=True, stream_options={"include_usage": True}, **IDS)
    assert events[-1] == "[DONE]"
    *chunks, extension, usage, _ = events
    assert extension["choices"] == [] and usage["choices"] == []
    assert extension["sglext"]["input_ids"] == whole["choices"][0]["prompt_token_ids"]
    assert extension["sglext"]["output_ids"] == [whole["choices"][0]["response_token_ids"]]
    assert usage["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert all(chunk["object"] == "chat.completion.chunk" for chunk in chunks)
    assert "sglext" not in chunks[-1]


async def test_stream_of_two_choices_ends_both_at_its_end_and_counts_them_together(engine: Engine) -> None:
    options = {"include_usage": True}
    alone = (await engine.stream(max_tokens=9, ignore_eos=True, stream_options=options))[-2]["usage"]
    *events, counted, done = await engine.stream(n=2, max_tokens=9, ignore_eos=True, stream_options=options)
    choices = [choice for event in events for choice in event["choices"]]
    assert {choice["index"] for choice in choices[:-2]} == {0, 1}
    assert {choice["finish_reason"] for choice in choices[:-2]} == {None}
    assert sorted((choice["index"], choice["finish_reason"]) for choice in choices[-2:]) == [
        (0, "length"),
        (1, "length"),
    ]
    assert (counted["choices"], done) == ([], "[DONE]")
    assert (counted["usage"]["prompt_tokens"], counted["usage"]["completion_tokens"]) == (alone["prompt_tokens"], 18)


async def test_stream_opens_with_the_role_and_closes_with_a_reason(engine: Engine) -> None:
    events = await engine.stream(max_tokens=5, ignore_eos=True)
    chunks = [event for event in events if event != "[DONE]"]
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": "", "reasoning_content": None}
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks[:-1])


async def test_stream_carries_one_logprob_for_every_id(engine: Engine) -> None:
    """Also for tokens that add no text of their own: pieces of a character, which a random model makes often."""
    events = await engine.stream(max_tokens=60, ignore_eos=True, logprobs=True, **IDS)
    chunks = [event for event in events if event != "[DONE]"]
    entries = [
        entry
        for chunk in chunks
        if chunk["choices"] and chunk["choices"][0].get("logprobs")
        for entry in chunk["choices"][0]["logprobs"]["content"]
    ]
    ids = next(chunk["sglext"]["output_ids"][0] for chunk in chunks if chunk.get("sglext"))
    assert len(entries) == len(ids) == 60
    assert all(entry["logprob"] <= 0 for entry in entries)


async def test_stream_that_stops_by_itself_gives_the_stop_token_its_logprob(engine: Engine) -> None:
    stop = {"stop_token_ids": list(range(300))} if engine.kind == "real" else {}
    if engine.fake is not None:
        engine.fake.reply = "short"
    events = await engine.stream(max_tokens=500, temperature=1, logprobs=True, **stop, **IDS)
    chunks = [event for event in events if event != "[DONE]" and event["choices"]]
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    entries = [one for chunk in chunks for one in (chunk["choices"][0].get("logprobs") or {}).get("content", [])]
    ids = next(event["sglext"]["output_ids"][0] for event in events if event != "[DONE]" and event.get("sglext"))
    assert chunks[-1]["choices"][0]["matched_stop"] == ids[-1]
    assert len(entries) == len(ids)


async def test_stream_text_is_the_text_of_the_whole_answer(engine: Engine) -> None:
    _, whole = await engine.chat(max_tokens=9)
    events = await engine.stream(max_tokens=9)
    pieces = [chunk["choices"][0]["delta"].get("content") or "" for chunk in events[:-1] if chunk["choices"]]
    assert "".join(pieces) == whole["choices"][0]["message"]["content"]


@pytest.mark.parametrize("key", ["return_token_ids", "return_prompt_token_ids", "return_meta_info"])
async def test_stream_refuses_ids_in_the_choice(engine: Engine, key: str) -> None:
    status, answer = await engine.chat(stream=True, **{key: True})
    assert status == 400
    assert answer["object"] == "error" and key in answer["message"]


async def test_chat_without_messages_is_refused(engine: Engine) -> None:
    status, _ = await engine.chat(messages=[])
    assert status == 400


# ---------------------------------------------------------------- control


@pytest.mark.parametrize(
    "path",
    ["/pause_generation", "/continue_generation", "/update_weights_from_disk", "/weights_checker", "/abort_request"],
)
@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}], ids=["none", "wrong"])
async def test_control_without_the_admin_key_is_refused(engine: Engine, path: str, headers: dict[str, str]) -> None:
    status, _ = await engine.control(path, headers=headers, model_path="/x")
    assert status == 401
    assert (await engine.get("/ready"))[0] == 200


async def test_pause_makes_the_engine_unready_and_new_requests_wait(engine: Engine) -> None:
    assert (await engine.control("/pause_generation", mode="retract"))[0] == 200
    assert (await engine.get("/ready"))[0] == 503
    waiting = asyncio.create_task(engine.chat(max_tokens=2))
    await asyncio.sleep(0.7)
    assert not waiting.done()
    assert (await engine.control("/continue_generation"))[0] == 200
    assert (await engine.get("/ready"))[0] == 200
    assert (await waiting)[0] == 200


async def test_abort_pause_ends_a_running_request_with_what_it_has(engine: Engine) -> None:
    running = asyncio.create_task(engine.chat(**LONG))
    await asyncio.sleep(0.4)
    await engine.control("/pause_generation", mode="abort")
    status, answer = await running
    await engine.control("/continue_generation")
    assert status == 200
    assert answer["choices"][0]["finish_reason"] == "abort"
    assert 0 < answer["usage"]["completion_tokens"] < TOKENS


async def test_update_changes_weights_version_and_path(engine: Engine) -> None:
    before = await engine.checksum()
    assert await engine.checksum() == before
    status, answer = await engine.update("v1")
    assert (status, answer["success"]) == (200, True)
    info = await engine.model_info()
    assert info["weight_version"] == engine.versions["v1"]
    assert info["model_path"] == info["served_model_name"] == f"{engine.directory}/v1"
    assert await engine.checksum() != before
    _, chat = await engine.chat(max_tokens=2)
    assert chat["metadata"]["weight_version"] == engine.versions["v1"]
    await engine.update("base")
    assert await engine.checksum() == before


async def test_request_that_runs_through_an_update_carries_both_versions(engine: Engine) -> None:
    running = asyncio.create_task(engine.chat(return_meta_info=True, return_token_ids=True, **LONG))
    await asyncio.sleep(0.4)
    await engine.control("/pause_generation", mode="retract")
    assert (await engine.update("v2"))[0] == 200
    await engine.control("/continue_generation")
    choice = (await running)[1]["choices"][0]
    spans = choice["meta_info"]["weight_versions"]
    assert [span["version"] for span in spans] == [BASE, engine.versions["v2"]]
    assert spans[0]["start"] == 0 and spans[0]["end"] == spans[1]["start"]
    assert spans[1]["end"] == len(choice["response_token_ids"]) == TOKENS
    assert choice["meta_info"]["num_retractions"] >= 1


async def test_stream_survives_an_update(engine: Engine) -> None:
    seen = []
    async for event in engine.events(**LONG, **IDS):
        seen.append(event)
        if len(seen) == 40:
            await engine.control("/pause_generation", mode="retract")
            await engine.update("v1")
            await engine.control("/continue_generation")
    extension = next(event for event in seen if event != "[DONE]" and event.get("sglext"))
    assert len(extension["sglext"]["output_ids"][0]) == TOKENS
    assert seen[-1] == "[DONE]"


async def test_update_from_nowhere_is_refused_and_changes_nothing(engine: Engine) -> None:
    before = await engine.checksum()
    status, answer = await engine.control(
        "/update_weights_from_disk", model_path=f"{engine.directory}/v99", weight_version="99-00000000"
    )
    assert (status, answer["success"]) == (400, False)
    assert (await engine.model_info())["weight_version"] == BASE
    assert await engine.checksum() == before
    assert (await engine.chat(max_tokens=2))[0] == 200


async def test_abort_by_id_ends_one_request(engine: Engine) -> None:
    rid = "a" * 32
    running = asyncio.create_task(engine.chat(rid=rid, **LONG))
    await asyncio.sleep(0.4)
    assert (await engine.control("/abort_request", rid=rid))[0] == 200
    assert (await running)[1]["choices"][0]["finish_reason"] == "abort"
