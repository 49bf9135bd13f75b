"""What a client gets of a stream: every byte, less what it did not ask for."""

import json

import pytest

from openclaw_gateway.recording import StreamRecorder
from openclaw_gateway.relay import End, Relay
from tests.fakes import engine_replies as replies


def stream_of(text, *, logprobs=True, ids=True, usage=False, each=False):
    """The fake engine's events for a reply, and what a client would get that asked for neither ids nor logprobs.

    `usage`: the client asked for the event with it, `each`: for the count so far in each event.
    """

    def events(body, counts=True):
        tokens = [*map(ord, text), replies.EOS]
        run = replies.Generation("rid", body | {"messages": []}, [1, 2, 3], tokens, 1000, now=lambda: 1_800_000_000.0)
        run.body["stream_options"] = {"include_usage": counts, "continuous_usage_stats": each}
        parts = [replies.first_chunk(run)]
        while run.finish_reason is None:
            run.advance("0-00000000")
            parts.append(replies.token_chunk(run, len(run.output) - 1))
        return [*parts, *replies.closing_chunks(run, with_ids=True)]

    flags = {"return_input_ids_in_sglext": True, "return_output_ids_in_sglext": True} if ids else {}
    return events({"logprobs": logprobs} | flags), events({}, counts=usage)


def relayed(data, *, recorder, cut=True, size=None, usage=False, choices=1):
    relay = Relay(recorder, cut_logprobs=cut, cut_usage=not usage, choices=choices)
    pieces = [data] if size is None else [data[at : at + size] for at in range(0, len(data), size)]
    sent = b"".join(relay.feed(piece) for piece in pieces)
    relay.cut_off()
    return relay, sent


HOSTILE = 'a"logprobs":{"finish_reason":"abort"},"sglext":{}\u2028\\ "},"finish_reason":"stop" \U0001f600'


@pytest.mark.parametrize("size", [None, 1, 7, 100])
@pytest.mark.parametrize("usage", [False, True])
def test_client_gets_exactly_the_stream_it_asked_for(size, usage):
    sent_by_engine, expected = stream_of(HOSTILE, usage=usage)
    relay, sent = relayed(b"".join(sent_by_engine), recorder=StreamRecorder(), size=size, usage=usage)
    assert relay.end is End.DONE
    assert sent + relay.held() == b"".join(expected)
    assert (relay.usage.prompt_tokens, relay.usage.completion_tokens) == (3, len(HOSTILE) + 1)


def test_stream_is_held_back_from_its_finish_reason_on():
    events, expected = stream_of("hey")
    relay, sent = relayed(b"".join(events), recorder=StreamRecorder())
    assert sent == b"".join(expected[:-2])
    assert relay.held() == b"".join(expected[-2:])


def test_client_that_asked_for_logprobs_gets_them():
    events, _ = stream_of("hey", ids=False)
    relay, sent = relayed(b"".join(events), recorder=StreamRecorder(), cut=False, usage=True)
    assert sent + relay.held() == b"".join(events)


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("usage", [False, True])
def test_unrecorded_stream_is_passed_as_it_is_and_counted(usage, each):
    events, expected = stream_of(HOSTILE, logprobs=False, ids=False, usage=usage, each=each)
    relay, sent = relayed(b"".join(events), recorder=None, cut=False, usage=usage)
    assert relay.end is End.DONE
    assert sent + relay.held() == b"".join(expected)
    assert (relay.usage.prompt_tokens, relay.usage.completion_tokens) == (3, len(HOSTILE) + 1)


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_only_the_event_that_counts_the_whole_stream_is_cut(separators):
    def event(**fields):
        return b"data: " + json.dumps({"id": "x"} | fields, separators=separators).encode() + b"\n\n"

    count = {"prompt_tokens": 2, "completion_tokens": 1}
    others = [
        event(choices=[], usage=None),
        event(choices=[]),
        event(choices=[{"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}], usage=count),
        event(choices=[], usage={"prompt_tokens": "two"}),
        event(usage=count),
    ]
    done = b"data: [DONE]\n\n"
    relay, sent = relayed(b"".join([*others, event(choices=[], usage=count), done]), recorder=None)
    assert sent + relay.held() == b"".join([*others, done])
    assert (relay.usage.prompt_tokens, relay.usage.completion_tokens) == (2, 1)


def test_stream_of_two_choices_is_held_from_the_last_finish_on():
    """One of them may have a long way to go when the other is done."""

    def event(index, **choice):
        return b"data: " + json.dumps({"choices": [{"index": index} | choice]}).encode() + b"\n\n"

    said = [event(0, delta={"content": "a"}), event(0, finish_reason="stop"), event(1, delta={"content": "b"})]
    ends = [event(1, finish_reason="stop"), b"data: [DONE]\n\n"]
    relay, sent = relayed(b"".join(said + ends), recorder=StreamRecorder(), choices=2)
    assert (relay.end, sent, relay.held()) == (End.DONE, b"".join(said), b"".join(ends))


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_logprobs_are_cut_in_any_spacing_and_order(separators):
    value = {"content": [{"token": '"}]', "bytes": [34], "logprob": -0.5, "top_logprobs": []}]}
    choice = {"finish_reason": None, "index": 0, "logprobs": value, "delta": {"content": "ü"}}
    event = b"data: " + json.dumps({"choices": [choice]}, separators=separators, ensure_ascii=False).encode() + b"\n\n"
    wanted = json.dumps({"choices": [choice | {"logprobs": None}]}, separators=separators, ensure_ascii=False)
    relay = Relay(StreamRecorder(), cut_logprobs=True, cut_usage=True)
    assert relay.feed(event) == b"data: " + wanted.encode() + b"\n\n"


def test_aborted_turn_never_reaches_the_client_as_a_finish_reason():
    chunk = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}\n\ndata: [DONE]\n\n'
    relay, sent = relayed(chunk, recorder=StreamRecorder())
    assert (relay.end, sent, relay.held()) == (End.FAILED, b"", b"")
    assert json.loads(relay.error_frame[6:])["error"]["code"] == "upstream_aborted"


@pytest.mark.parametrize("recorder", [StreamRecorder(), None])
def test_stream_that_just_ends_is_an_error(recorder):
    events, _ = stream_of("hey")
    for data in (b"".join(events[:3]), b"".join(events[:-1]), b"".join(events[:3]) + b"data: [DONE]\n\n"):
        relay, _ = relayed(data, recorder=recorder)
        assert relay.end is End.FAILED
        assert b"[DONE]" not in relay.error_frame
        assert json.loads(relay.error_frame[6:])["error"]["code"] == "upstream_cut"


def test_error_frame_of_the_engine_is_passed_on():
    frame = replies.error_event("boom", 500)
    relay, _ = relayed(replies.first_chunk(replies.Generation("r", {}, [], [], 1)) + frame, recorder=None)
    assert (relay.end, relay.error_frame) == (End.FAILED, frame)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"message": "The request queue is full.", "code": 503}, 503),
        ({"message": "too long", "code": 400}, 400),
        ({"message": "boom", "code": 500}, 502),
        ({"message": "boom", "code": "odd"}, 502),
        ({"message": "boom"}, 502),
        ("boom", 502),
    ],
)
def test_error_frame_as_a_refusal_has_the_engines_words_and_a_status(error, status):
    relay, _ = relayed(b"data: " + json.dumps({"error": error}).encode() + b"\n\n", recorder=None)
    assert relay.error.status == status
    assert (error if isinstance(error, str) else error["message"]) in relay.error.message


def test_line_of_300_kb_passes():
    events, expected = stream_of("x")
    big = json.dumps({"choices": [{"index": 0, "delta": {"content": "y" * 300_000}, "finish_reason": None}]})
    event = b"data: " + big.encode() + b"\n\n"
    _, sent = relayed(events[0] + event + b"".join(events[1:]), recorder=StreamRecorder(), size=4096)
    assert sent == expected[0] + event + b"".join(expected[1:-2])
