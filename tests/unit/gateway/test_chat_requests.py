"""Headers and body as one value; what makes a turn untracked or untrainable; what is forwarded."""

import json

import orjson
import pytest

from openclaw_gateway import chat_requests, forwarding
from openclaw_gateway.errors import ApiError

USER = [{"role": "user", "content": "hi"}]


def parse(body=None, *, default_main=True, **headers):
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    raw = orjson.dumps({"messages": USER} | (body or {}))
    return chat_requests.parse(given, raw, default_main=default_main)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages[0]"),
        ({"messages": [*USER, "x"]}, "messages[1]"),
        ({"stream": "yes"}, "stream"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": True}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": "2"}, "n"),
        ({"session_id": 7}, "session_id"),
        ({"session_id": "x" * 300}, "session_id"),
        ({"turn_type": "mian"}, "turn_type"),
    ],
)
def test_bad_field_is_named(body, param):
    with pytest.raises(ApiError) as refused:
        parse(body)
    assert (refused.value.status, refused.value.param) == (400, param)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'"x"', b"\xff", b'{"messages": NaN}'])
def test_body_that_is_no_object_is_refused(raw):
    with pytest.raises(ApiError) as refused:
        chat_requests.parse({}, raw, default_main=True)
    assert refused.value.status == 400


def test_headers_beat_body_keys_and_the_keys_are_not_forwarded():
    body = {"session_id": "b", "turn_type": "side", "session_done": False}
    request = parse(body, x_session_id="h", x_turn_type="MAIN", x_session_done="yes")
    assert (request.session, request.main, request.done) == ("h", True, True)
    plain = parse(body | {"session_done": True})
    assert (plain.session, plain.main, plain.done) == ("b", False, True)
    sent = orjson.loads(forwarding.upstream_body(plain, model="m", rid="r", recorded=False))
    assert not set(chat_requests.OURS) & set(sent)


def test_default_turn_type_is_the_configured_one():
    assert parse(default_main=True).untracked is None
    assert parse(default_main=False).untracked == "side"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"n": 2}, "n"),
        ({"n": 1}, None),
        ({"messages": [*USER, {"role": "assistant", "content": "I"}]}, "prefill"),
        ({"continue_final_message": True}, "prefill"),
        ({"turn_type": "side", "n": 2}, "side"),
    ],
)
def test_untracked_reasons(body, reason):
    assert parse(body).untracked == reason


@pytest.mark.parametrize(
    ("body", "modified"),
    [
        ({}, False),
        ({"presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}, "repetition_penalty": 1.0}, False),
        ({"response_format": {"type": "text"}, "tool_choice": "auto", "tools": [{"function": {"name": "f"}}]}, False),
        ({"top_p": 0.5, "top_k": 20, "min_p": 0.1}, False),
        ({"presence_penalty": 0.1}, True),
        ({"frequency_penalty": -1}, True),
        ({"repetition_penalty": 1.1}, True),
        ({"logit_bias": {"5": 1}}, True),
        ({"response_format": {"type": "json_object"}}, True),
        ({"tool_choice": "required"}, True),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, True),
        ({"tools": [{"function": {"name": "f", "strict": True}}]}, True),
    ],
)
def test_modified_logits(body, modified):
    assert parse(body).modified_logits is modified


def test_every_sampling_parameter_is_sent_and_recorded():
    request = parse({"temperature": 0, "top_k": 5})
    sent = orjson.loads(forwarding.upstream_body(request, model="m", rid="r", recorded=True))
    assert (sent["temperature"], sent["top_p"], sent["top_k"], sent["min_p"], sent["repetition_penalty"]) == (
        0,
        1,
        5,
        0,
        1,
    )
    assert request.sampling.model_dump() == {"temperature": 0.0, "top_p": 1.0, "top_k": 5, "min_p": 0.0}


def test_only_listed_fields_are_forwarded_and_ours_win():
    hostile = {
        "rid": "x",
        "model": "base:adapter",
        "lora_path": "/etc/passwd",
        "priority": 9,
        "input_ids": [1],
        "return_hidden_states": True,
        "return_token_ids": True,
        "custom_logit_processor": "x",
        "session_params": {},
        "store": True,
        "seed": 7,
        "stop": ["x"],
        "chat_template_kwargs": {"enable_thinking": False},
    }
    sent = orjson.loads(forwarding.upstream_body(parse(hostile), model="policy", rid="ours", recorded=False))
    kept = {"messages", "seed", "stop", "chat_template_kwargs", "model", "rid"}
    sampling = {"temperature", "top_p", "top_k", "min_p", "repetition_penalty"}
    assert set(sent) == kept | sampling
    assert (sent["model"], sent["rid"]) == ("policy", "ours")


def test_messages_are_forwarded_as_they_came():
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": "a"}], "name": "n"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "index": 0, "type": "function"}]},
        {"role": "tool", "tool_call_id": "1", "content": "x", "unknown": {"deep": [1, None]}},
        {"role": "user", "content": "y"},
    ]
    sent = orjson.loads(forwarding.upstream_body(parse({"messages": messages}), model="m", rid="r", recorded=True))
    assert sent["messages"] == json.loads(json.dumps(messages))


@pytest.mark.parametrize(("stream", "flag"), [(True, "return_output_ids_in_sglext"), (False, "return_token_ids")])
def test_recorded_request_asks_for_ids_in_the_way_its_kind_allows(stream, flag):
    request = parse({"stream": stream})
    asked = set(orjson.loads(forwarding.upstream_body(request, model="m", rid="r", recorded=True)))
    assert flag in asked and "logprobs" in asked
    assert ("return_meta_info" in asked) is not stream


def test_hints_are_fingerprints():
    hints = parse({"user": "alice@example.org", "metadata": {"user_id": "7"}}).hints()
    assert set(hints) == {"user", "meta"}
    assert "alice" not in str(hints)


@pytest.mark.parametrize(("header", "retry"), [("0", False), ("1", True), ("2", True), ("", False), ("x", False)])
def test_retry_is_what_the_client_says(header, retry):
    assert parse(x_stainless_retry_count=header).is_retry is retry
