"""Messages requests as chat completions, and replies back: no gateway, no engine."""

import json

import pytest

from openclaw_gateway import conversation, forwarding
from openclaw_gateway.anthropic import replies, requests
from openclaw_gateway.anthropic.face import MessagesFace
from openclaw_gateway.anthropic.streams import MessageStream
from openclaw_gateway.errors import ApiError, paused, too_many


def chat(**body):
    return requests.to_chat({"model": "m", "max_tokens": 9} | body)


def said(*messages, **body):
    return chat(messages=list(messages), **body)["messages"]


def user(*blocks):
    return {"role": "user", "content": list(blocks)}


def test_system_and_plain_texts_become_messages():
    assert said(user({"type": "text", "text": "Hi"}), system="Be brief.") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
    ]


def test_system_blocks_are_joined_without_the_line_that_differs_with_each_request():
    blocks = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=00af"},
        {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Be kind."},
    ]
    assert said(user({"type": "text", "text": "Hi"}), system=blocks)[0]["content"] == "Be brief.\n\nBe kind."


def test_tool_use_and_its_results_keep_their_order_and_ids():
    call = {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": "ü"}}
    other = {"type": "tool_use", "id": "t2", "name": "look", "input": {}}
    results = [
        {"type": "text", "text": "before"},
        {"type": "tool_result", "tool_use_id": "t1", "content": "red"},
        {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "a"}], "is_error": True},
        {"type": "text", "text": "and now?"},
    ]
    found = said(user({"type": "text", "text": "Hi"}), {"role": "assistant", "content": [call, other]}, user(*results))
    assert found[1]["tool_calls"] == [
        {"id": "t1", "type": "function", "function": {"name": "look", "arguments": '{"at":"ü"}'}},
        {"id": "t2", "type": "function", "function": {"name": "look", "arguments": "{}"}},
    ]
    assert found[2:] == [
        {"role": "user", "content": "before"},
        {"role": "tool", "tool_call_id": "t1", "content": "red"},
        {"role": "tool", "tool_call_id": "t2", "content": "a"},
        {"role": "user", "content": "and now?"},
    ]


def test_thinking_goes_back_as_reasoning_and_what_is_redacted_is_left_out():
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "Yes."},
    ]
    (_, answer, _) = said(
        user({"type": "text", "text": "?"}), {"role": "assistant", "content": blocks}, {"role": "user", "content": "ok"}
    )
    assert answer == {"role": "assistant", "content": "Yes.", "reasoning_content": "hm"}


def test_images_and_documents_are_parts():
    found = said(
        user(
            {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "AA=="}},
            {"type": "image", "source": {"type": "url", "url": "http://x/y.png"}},
            {"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain", "data": "words"}},
        )
    )
    assert found[0]["content"] == [
        {"type": "image_url", "image_url": {"url": "data:image/gif;base64,AA=="}},
        {"type": "image_url", "image_url": {"url": "http://x/y.png"}},
        {"type": "text", "text": "T\nwords"},
    ]


def test_parameters_have_the_names_of_a_chat_completion_and_unknown_ones_are_ignored():
    found = chat(
        messages=[{"role": "user", "content": "Hi"}],
        stop_sequences=["END"],
        temperature=0.5,
        top_k=40,
        stream=True,
        thinking={"type": "disabled"},
        tools=[{"name": "look", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
        betas=["x"],
        context_management={},
        service_tier="auto",
        output_config={"effort": "xhigh"},
    )
    assert found.pop("messages") == [{"role": "user", "content": "Hi"}]
    assert found == {
        "model": "m",
        "max_tokens": 9,
        "stop": ["END"],
        "temperature": 0.5,
        "top_k": 40,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "chat_template_kwargs": {"thinking": False, "enable_thinking": False},
        "tools": [
            {"type": "function", "function": {"name": "look", "description": "", "parameters": {"type": "object"}}}
        ],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "reasoning_effort": "max",
    }


def test_last_message_of_the_assistant_is_continued():
    found = chat(messages=[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "I think"}])
    assert found["continue_final_message"] is True


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages.0.content.0.type"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "messages.0.content.0.tool_use_id"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages.0.content.0.source"),
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools.0.type"),
        ({"tool_choice": {"type": "maybe"}}, "tool_choice.type"),
        ({"stop_sequences": "x"}, "stop_sequences"),
    ],
)
def test_faults_are_named_as_the_client_wrote_them(body, field):
    with pytest.raises(ApiError) as refused:
        chat(**{"messages": [{"role": "user", "content": "Hi"}]} | body)
    assert (refused.value.status, refused.value.param) == (400, field)
    assert field in refused.value.message


def test_only_the_allow_list_reaches_the_engine():
    raw = json.dumps(
        {"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], "metadata": {"user_id": "u"}, "rid": "evil"}
    ).encode()
    request = MessagesFace().parse({}, raw, default_main=True)
    sent = json.loads(MessagesFace().upstream(request, model="policy", rid="ours", recorded=True))
    assert sent["rid"] == "ours" and "metadata" not in sent and sent["return_token_ids"] is True
    assert set(request.hints()) == {"meta"}
    assert set(sent) <= {
        *forwarding.FORWARDED,
        "model",
        "rid",
        "logprobs",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
    } | {
        "repetition_penalty",
        "return_token_ids",
        "return_prompt_token_ids",
        "return_meta_info",
    }


def reply(message, finish="stop", matched=None, **usage):
    choice = {"index": 0, "message": {"role": "assistant"} | message, "finish_reason": finish, "matched_stop": matched}
    return {"id": "1", "model": "policy", "choices": [choice], "usage": usage}


def test_reply_has_a_block_for_each_part_and_counts_cached_tokens_apart():
    call = {"id": "t1", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}}
    found = replies.message(
        reply(
            {"content": "Yes.", "reasoning_content": "hm", "tool_calls": [call]},
            "tool_calls",
            prompt_tokens=10,
            completion_tokens=4,
            prompt_tokens_details={"cached_tokens": 7},
        )
    )
    assert [block["type"] for block in found["content"]] == ["thinking", "text", "tool_use"]
    assert found["content"][2]["input"] == {"a": 1}
    assert found["stop_reason"] == "tool_use"
    assert (found["usage"]["input_tokens"], found["usage"]["cache_read_input_tokens"]) == (3, 7)


@pytest.mark.parametrize("arguments", ["{broken", "[1]", "3"])
def test_arguments_that_are_no_object_are_shown_and_not_taken_for_an_empty_call(arguments):
    call = {"id": "t1", "function": {"name": "look", "arguments": arguments}}
    (block,) = replies.message(reply({"content": "", "tool_calls": [call]}))["content"]
    assert block["input"] == {"unparsed_arguments": arguments}


@pytest.mark.parametrize(
    ("finish", "matched", "reason", "sequence"),
    [
        ("stop", 0, "end_turn", None),
        ("stop", None, "end_turn", None),
        ("stop", "END", "stop_sequence", "END"),
        ("length", None, "max_tokens", None),
        ("content_filter", None, "refusal", None),
    ],
)
def test_stop_reasons(finish, matched, reason, sequence):
    found = replies.message(reply({"content": "x"}, finish, matched))
    assert (found["stop_reason"], found["stop_sequence"]) == (reason, sequence)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ApiError(401, "no"), "authentication_error"),
        (ApiError(400, "no"), "invalid_request_error"),
        (ApiError(413, "no"), "request_too_large"),
        (too_many("staleness_bound", 1), "rate_limit_error"),
        (paused(1), "overloaded_error"),
        (ApiError(502, "no"), "api_error"),
        (ApiError(504, "no"), "timeout_error"),
    ],
)
def test_errors_have_anthropics_shape(error, kind):
    body = replies.error_body(error, "req-1")
    assert (body["type"], body["error"]["type"], body["request_id"]) == ("error", kind, "req-1")
    assert body["error"]["message"] == error.message


def chunk(delta, **fields):
    choice = {"index": 0, "delta": delta, "finish_reason": None} | fields
    return b"data: " + json.dumps({"id": "1", "model": "policy", "choices": [choice]}).encode() + b"\n\n"


def events(*chunks, size=None):
    stream = MessageStream()
    data = b"".join(chunks)
    pieces = [data] if size is None else [data[at : at + size] for at in range(0, len(data), size)]
    sent = b"".join(stream.feed(piece) for piece in pieces)
    found = [line.split(b"\n") for line in sent.split(b"\n\n") if line]
    assert all(kind[7:].decode() == json.loads(data[6:])["type"] for kind, data in found)
    return [json.loads(data[6:]) for _, data in found]


def call(number, arguments, name=None):
    function = {"name": name, "arguments": arguments}
    return chunk({"tool_calls": [{"index": number, "id": name and f"t{number}", "function": function}]})


DONE = b"data: [DONE]\n\n"


@pytest.mark.parametrize("size", [None, 1])
def test_stream_of_thinking_text_and_parallel_calls(size):
    found = events(
        chunk({"role": "assistant", "content": "", "reasoning_content": None}),
        b": comment\n\n",
        chunk({"reasoning_content": "hm"}),
        chunk({"content": "Y\u2028"}),
        chunk({"content": "es"}),
        call(0, "", "look"),
        call(0, '{"a":'),
        call(0, "1}"),
        call(1, "{}", "go"),
        chunk({}, finish_reason="tool_calls"),
        b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3}}\n\n',
        DONE,
        size=size,
    )
    kinds = [(event["type"], event.get("index")) for event in found]
    assert kinds == [
        ("message_start", None),
        ("content_block_start", 0),
        ("content_block_delta", 0),
        ("content_block_stop", 0),
        ("content_block_start", 1),
        ("content_block_delta", 1),
        ("content_block_delta", 1),
        ("content_block_stop", 1),
        ("content_block_start", 2),
        ("content_block_delta", 2),
        ("content_block_delta", 2),
        ("content_block_stop", 2),
        ("content_block_start", 3),
        ("content_block_delta", 3),
        ("content_block_stop", 3),
        ("message_delta", None),
        ("message_stop", None),
    ]  # fmt: skip
    assert found[5]["delta"]["text"] == "Y\u2028"
    assert found[8]["content_block"] == {"type": "tool_use", "id": "t0", "name": "look", "input": {}}
    assert found[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert (found[-2]["usage"]["input_tokens"], found[-2]["usage"]["output_tokens"]) == (5, 3)


def blocks(found):
    """The content a client puts together. One block is open at a time, and nothing comes for one that is over."""
    content, is_open = [], False
    for event in found:
        match event["type"]:
            case "content_block_start":
                assert not is_open and event["index"] == len(content)
                is_open = True
                content.append([event["content_block"].get("name") or event["content_block"]["type"], ""])
            case "content_block_delta":
                assert is_open and event["index"] == len(content) - 1
                content[-1][1] += event["delta"].get("partial_json") or event["delta"].get("text") or ""
            case "content_block_stop":
                assert is_open and event["index"] == len(content) - 1
                is_open = False
    assert not is_open
    return content


@pytest.mark.parametrize(
    "deltas",
    [
        [call(0, "", "look"), call(1, "", "go"), call(0, '{"a":'), call(1, '{"b"'), call(0, "1}"), call(1, ":2}")],
        [call(0, '{"a":', "look"), call(1, '{"b":2}', "go"), call(0, "1}")],
        [call(0, '{"a"', "look"), call(1, '{"b"', "go"), call(1, ":2}"), call(0, ":1}")],
        [call(0, '{"a":1}', "look"), call(1, '{"b":', "go"), call(0, "\n"), call(1, "2}")],
    ],
)
def test_calls_that_come_interleaved_are_told_one_after_the_other(deltas):
    found = events(*deltas, chunk({"content": "so"}), chunk({}, finish_reason="tool_calls"), DONE)
    assert blocks(found) == [["look", '{"a":1}'], ["go", '{"b":2}'], ["text", "so"]]


def test_call_that_is_never_whole_ends_with_the_answer():
    found = events(call(0, '{"a":', "look"), call(1, "{}", "go"), chunk({}, finish_reason="length"), DONE)
    assert blocks(found) == [["look", '{"a":'], ["go", "{}"]]


def test_calls_that_come_in_order_wait_for_nothing():
    stream = MessageStream()
    stream.feed(call(0, '{"a":1}', "look"))
    assert b'"name":"go"' in stream.feed(call(1, "", "go"))
    assert b'"partial_json":"{"' in stream.feed(call(1, "{"))


def test_message_starts_with_the_length_of_its_prompt_though_the_opening_chunk_does_not_say_it():
    counted = json.dumps({"choices": [{"index": 0, "delta": {"content": "Hi"}}], "usage": {"prompt_tokens": 5}})
    found = events(
        chunk({"role": "assistant", "content": "", "reasoning_content": None}),
        f"data: {counted}\n\n".encode(),
        chunk({}, finish_reason="stop"),
        DONE,
    )
    assert [event["type"] for event in found[:2]] == ["message_start", "content_block_start"]
    assert found[0]["message"]["usage"]["input_tokens"] == 5


def test_empty_stream_is_still_a_whole_message():
    kinds = [event["type"] for event in events(chunk({}, finish_reason="stop"), DONE)]
    assert kinds == ["message_start", "message_delta", "message_stop"]


def test_error_frame_becomes_an_error_event():
    sent = MessageStream().failure(b'data: {"error":{"message":"cut","type":"server_error","code":"upstream_cut"}}\n\n')
    assert sent.startswith(b"event: error\ndata: ")
    body = json.loads(sent.split(b"\ndata: ")[1])
    assert (body["error"]["type"], body["error"]["message"]) == ("api_error", "cut")


def test_next_turn_continues_the_chain_of_what_was_answered():
    """The engine's answer and the client's later quotation of it are the same conversation."""
    answer = {"role": "assistant", "content": "Yes.", "reasoning_content": "hm", "tool_calls": [
        {"id": "t1", "type": "function", "function": {"name": "look", "arguments": '{"b": 1, "a": 2}'}}
    ]}  # fmt: skip
    quoted = replies.message(reply(answer))["content"]
    first = said({"role": "user", "content": "Hi"})
    later = said(
        {"role": "user", "content": "Hi"}, {"role": "assistant", "content": quoted}, {"role": "user", "content": "ok"}
    )
    wanted = conversation.extend(conversation.outline(first).chain, answer)
    assert [prefix.chain for prefix in conversation.outline(later).prefixes] == [wanted]
