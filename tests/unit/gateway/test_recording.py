"""A recording is exact or it is none: nothing is padded, guessed or rounded."""

import orjson
import pytest

from openclaw_core import wire
from openclaw_gateway.recording import Answer, StreamRecorder
from openclaw_gateway.replies import NO_REPLY, Reply
from openclaw_gateway.store.turns import Span

SAMPLING = wire.Sampling(temperature=0.7)
V1, V2 = "1-0a1b2c3d", "2-0a1b2c3d"


def reply(**choice):
    ids = [5, 6, 0]
    triples = [[-0.1, 5, None], [-0.30000001192092896, 6, None], [-2.5, 0, None]]
    fields = {
        "message": {"role": "assistant", "content": "hi"},
        "finish_reason": "stop",
        "prompt_token_ids": [1, 2],
        "response_token_ids": ids,
        "meta_info": {"output_token_logprobs": triples},
    }
    return {"choices": [fields | choice], "metadata": {"weight_version": V1}}


def read(body):
    return Reply(orjson.dumps(body), keep_logprobs=False).answer(SAMPLING)


def stripped(body, *, keep_logprobs):
    return orjson.loads(Reply(orjson.dumps(body), keep_logprobs=keep_logprobs).stripped())


def test_reply_is_recorded_with_the_engines_digits():
    answer = read(reply())
    assert answer.recording is not None
    assert answer.recording.logprobs == [-0.1, -0.30000001192092896, -2.5]
    assert answer.recording.spans == [Span(version=V1, start=0, end=3)]


def test_text_that_looks_like_the_logprobs_is_served_and_recorded():
    content = '"logprobs":{"content":[]},"finish_reason":"stop" \\"logprobs":{ },"finish_reason": "'
    body = reply(message={"role": "assistant", "content": content}, logprobs={"content": [{"token": content}]})
    assert read(body).message["content"] == content
    assert read(body).recording is not None
    choice = stripped(body, keep_logprobs=False)["choices"][0]
    assert choice == {"message": body["choices"][0]["message"], "logprobs": None, "finish_reason": "stop"}


@pytest.mark.parametrize("order", [("finish_reason", "logprobs"), ("logprobs", "finish_reason", "message")])
def test_logprobs_are_cut_out_in_any_order_of_fields(order):
    choice = reply(logprobs={"content": [{"token": "a", "logprob": -1, "top_logprobs": []}]})["choices"][0]
    ordered = {name: choice[name] for name in (*order, *choice)}
    body = {"metadata": {"weight_version": V1}, "choices": [ordered]}
    assert read(body).recording is not None
    assert stripped(body, keep_logprobs=False)["choices"][0]["logprobs"] is None
    assert stripped(body, keep_logprobs=True)["choices"][0]["logprobs"] == choice["logprobs"]


@pytest.mark.parametrize(
    "usage", [None, "many", {"prompt_tokens": "x"}, {"prompt_tokens": -1}, {"prompt_tokens": None}]
)
def test_usage_that_is_none_counts_nothing(usage):
    found = Reply(orjson.dumps(reply() | {"usage": usage}), keep_logprobs=False).usage
    assert (found.prompt_tokens, found.completion_tokens) == (0, 0)


def test_reply_that_crossed_a_sync_has_both_versions():
    body = reply() | {
        "metadata": {
            "weight_version": V2,
            "weight_versions": [{"version": V1, "start": 0, "end": 1}, {"version": V2, "start": 1, "end": 3}],
        }
    }
    answer = read(body)
    assert answer.recording is not None
    assert [(span.version, span.start, span.end) for span in answer.recording.spans] == [(V1, 0, 1), (V2, 1, 3)]


@pytest.mark.parametrize(
    "choice",
    [
        {"response_token_ids": None},
        {"prompt_token_ids": None},
        {"response_token_ids": [5, 6]},
        {"response_token_ids": [5, 7, 0]},
        {"response_token_ids": []},
        {"prompt_token_ids": []},
        {"prompt_token_ids": [1, 2**31]},  # more than the store has room for
        {"prompt_token_ids": [1, True]},
        {"meta_info": {}},
        {"meta_info": {"output_token_logprobs": [[-0.1, 5, None], [None, 6, None], [-2.5, 0, None]]}},
        {"meta_info": {"output_token_logprobs": [[-0.1, 5, None], [float("-inf"), 6, None], [-2.5, 0, None]]}},
    ],
)
def test_reply_that_does_not_add_up_is_not_recorded(choice):
    assert read(reply(**choice)).recording is None


@pytest.mark.parametrize("version", ["default", "", None])
def test_unknown_version_is_not_recorded(version):
    body = reply() | {"metadata": {"weight_version": version}}
    assert read(body).recording is None


def test_what_the_client_did_not_ask_for_is_stripped():
    body = reply(logprobs={"content": []}) | {"sglext": {"input_ids": [1]}}
    assert stripped(body, keep_logprobs=False) == {
        "choices": [{"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop", "logprobs": None}],
        "metadata": {"weight_version": V1},
    }
    kept = stripped(reply(logprobs={"content": []}), keep_logprobs=True)
    assert kept["choices"][0]["logprobs"] == {"content": []}


def streamed(recorder, *logprobs, ids=(7, 8), versions=()):
    """One event per token; `versions` maps a token's index to the version seen before it."""
    changes = dict(versions)
    for index, value in enumerate(logprobs):
        if index in changes:
            recorder.version(changes[index])
        choice = {"index": 0, "delta": {}, "logprobs": {"content": [{"logprob": value}]}}
        recorder.event(orjson.dumps({"choices": [choice]}))
    recorder.event(orjson.dumps({"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}]}))
    if ids is not None:
        recorder.ids(orjson.dumps({"choices": [], "sglext": {"input_ids": [1], "output_ids": [list(ids)]}}))
    return recorder


def test_stream_is_recorded_with_ids_logprobs_and_version():
    answer = streamed(StreamRecorder(), -0.5, -0.25, versions=[(0, V1)]).answer(V1, SAMPLING)
    assert answer.recording is not None
    assert (answer.recording.output_ids, answer.recording.logprobs) == ([7, 8], [-0.5, -0.25])
    assert answer.recording.spans == [Span(version=V1, start=0, end=2)]
    assert (answer.message["content"], answer.finish_reason) == ("hi", "stop")


def test_stream_that_crossed_a_sync_has_both_versions():
    recorder = streamed(StreamRecorder(), -1, -2, -3, ids=(7, 8, 9), versions=[(0, V1), (2, V2)])
    answer = recorder.answer(V2, SAMPLING)
    assert answer.recording is not None
    assert [(s.version, s.start, s.end) for s in answer.recording.spans] == [(V1, 0, 2), (V2, 2, 3)]


def test_change_seen_only_at_the_end_is_dated_to_the_last_token():
    answer = streamed(StreamRecorder(), -1, -2, -3, ids=(7, 8, 9), versions=[(0, V1)]).answer(V2, SAMPLING)
    assert answer.recording is not None
    assert [(s.version, s.start, s.end) for s in answer.recording.spans] == [(V1, 0, 2), (V2, 2, 3)]


@pytest.mark.parametrize(("ids", "versions", "end"), [((7,), [(0, V1)], V1), (None, [(0, V1)], V1), ((7, 8), [], None)])
def test_stream_that_does_not_add_up_is_not_recorded(ids, versions, end):
    assert streamed(StreamRecorder(), -0.5, -0.25, ids=ids, versions=versions).answer(end, SAMPLING).recording is None


@pytest.mark.parametrize("data", [b"{}", b'{"sglext":{"input_ids":[1],"output_ids":[[7,2147483648]]}}', b"no"])
def test_stream_whose_ids_are_garbled_is_served_but_not_recorded(data):
    recorder = streamed(StreamRecorder(), -0.5, -0.25, versions=[(0, V1)])
    recorder.ids(data)
    answer = recorder.answer(V1, SAMPLING)
    assert (answer.message["content"], answer.recording) == ("hi", None)


def test_stream_of_an_engine_with_unknown_version_is_not_recorded():
    recorder = streamed(StreamRecorder(), -0.5, -0.25, versions=[(0, None)])
    assert recorder.answer(V1, SAMPLING).recording is None


@pytest.mark.parametrize("garbled", [b"not json", b'{"choices":[{"index":0,"delta":[1]}]}', b'["choices"]'])
def test_stream_with_a_garbled_event_is_served_but_not_recorded(garbled):
    recorder = streamed(StreamRecorder(), -0.5, -0.25, versions=[(0, V1)])
    recorder.event(garbled)
    answer = recorder.answer(V1, SAMPLING)
    assert answer.recording is None
    assert not answer.is_empty


def test_reply_with_garbled_numbers_is_served_but_not_recorded():
    answer = read(reply(meta_info={"output_token_logprobs": [1, 2, 3]}))
    assert (answer.message["content"], answer.recording) == ("hi", None)
    with pytest.raises(NO_REPLY):
        read({"text": "hi"})


def test_parallel_tool_calls_are_put_together():
    def delta(**fields):
        return {"choices": [{"index": 0, "delta": {"tool_calls": [fields]}, "finish_reason": None}]}

    recorder = StreamRecorder()
    for chunk in (
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}]},
        delta(index=0, id="a", function={"name": "f", "arguments": ""}),
        delta(index=1, id="b", function={"name": "g", "arguments": '{"y"'}),
        delta(index=0, id=None, function={"name": None, "arguments": '{"x":1}'}),
        delta(index=1, function={"arguments": ":2}"}),
        {"choices": [], "usage": {}},
    ):
        recorder.event(orjson.dumps(chunk))
    assert recorder.answer(V1, SAMPLING).message["tool_calls"] == [
        {"type": "function", "id": "a", "function": {"name": "f", "arguments": '{"x":1}'}},
        {"type": "function", "id": "b", "function": {"name": "g", "arguments": '{"y":2}'}},
    ]


@pytest.mark.parametrize(
    ("message", "empty"),
    [
        ({"content": ""}, True),
        ({"content": " \n"}, True),
        ({"content": "x"}, False),
        ({"content": None, "tool_calls": [{}]}, False),
        ({"content": "", "reasoning_content": "hm"}, False),
    ],
)
def test_emptiness_of_an_answer(message, empty):
    assert Answer(message, "stop", None).is_empty is empty


def test_values_that_are_kept_are_the_engines_bytes():
    raw = (
        b'{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"\\u00fc"},"logprobs":{"content":[]},'
    )
    raw += b'"finish_reason":"stop"}],"usage":{"total_tokens":1.50}}'
    assert Reply(raw, keep_logprobs=False).stripped() == raw.replace(b'{"content":[]}', b"null")
