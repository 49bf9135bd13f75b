"""What a client gets of a stream: every byte, less what it did not ask for."""

import json

import pytest

from openclaw_gateway.recording import StreamRecorder
from openclaw_gateway.relay import End, Relay
from tests.fakes import engine_replies as replies


def stream_of(text, *, logprobs=True, ids=True, usage=False):
    """The fake engine's events for a reply, and what a client would get that asked for neither ids nor logprobs."""

    def events(body):
        tokens = [*map(ord, text), replies.EOS]
        run = replies.Generation("rid", body | {"messages": []}, [1, 2, 3], tokens, 1000, now=lambda: 1_800_000_000.0)
        run.body["stream_options"] = {"include_usage": usage}
        parts = [replies.first_chunk(run)]
        while run.finish_reason is None:
            run.advance("0-00000000")
            parts.append(replies.token_chunk(run, len(run.output) - 1))
        return [*parts, *replies.closing_chunks(run, with_ids=True)]

    flags = {"return_input_ids_in_sglext": True, "return_output_ids_in_sglext": True} if ids else {}
    return events({"logprobs": logprobs} | flags), events({})


def relayed(data, *, recorder, cut=True, size=None):
    relay = Relay(recorder, cut_logprobs=cut)
    pieces = [data] if size is None else [data[at : at + size] for at in range(0, len(data), size)]
    sent = b"".join(relay.feed(piece) for piece in pieces)
    relay.cut_off()
    return relay, sent


HOSTILE = 'a"logprobs":{"finish_reason":"abort"},"sglext":{}\u2028\\ "},"finish_reason":"stop" \U0001f600'


@pytest.mark.parametrize("size", [None, 1, 7, 100])
@pytest.mark.parametrize("usage", [False, True])
def test_client_gets_exactly_the_stream_it_asked_for(size, usage):
    sent_by_engine, expected = stream_of(HOSTILE, usage=usage)
    relay, sent = relayed(b"".join(sent_by_engine), recorder=StreamRecorder(), size=size)
    assert relay.end is End.DONE
    assert sent + relay.held() == b"".join(expected)


def test_stream_is_held_back_from_its_finish_reason_on():
    events, expected = stream_of("hey")
    relay, sent = relayed(b"".join(events), recorder=StreamRecorder())
    assert sent == b"".join(expected[:-2])
    assert relay.held() == b"".join(expected[-2:])


def test_client_that_asked_for_logprobs_gets_them():
    events, _ = stream_of("hey", ids=False)
    relay, sent = relayed(b"".join(events), recorder=StreamRecorder(), cut=False)
    assert sent + relay.held() == b"".join(events)


def test_unrecorded_stream_is_passed_as_it_is():
    events, _ = stream_of("hey", logprobs=False, ids=False, usage=True)
    relay, sent = relayed(b"".join(events), recorder=None, cut=False)
    assert relay.end is End.DONE
    assert sent + relay.held() == b"".join(events)


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_logprobs_are_cut_in_any_spacing_and_order(separators):
    value = {"content": [{"token": '"}]', "bytes": [34], "logprob": -0.5, "top_logprobs": []}]}
    choice = {"finish_reason": None, "index": 0, "logprobs": value, "delta": {"content": "ü"}}
    event = b"data: " + json.dumps({"choices": [choice]}, separators=separators, ensure_ascii=False).encode() + b"\n\n"
    wanted = json.dumps({"choices": [choice | {"logprobs": None}]}, separators=separators, ensure_ascii=False)
    assert Relay(StreamRecorder(), cut_logprobs=True).feed(event) == b"data: " + wanted.encode() + b"\n\n"


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


def test_line_of_300_kb_passes():
    events, expected = stream_of("x")
    big = json.dumps({"choices": [{"index": 0, "delta": {"content": "y" * 300_000}, "finish_reason": None}]})
    event = b"data: " + big.encode() + b"\n\n"
    _, sent = relayed(events[0] + event + b"".join(events[1:]), recorder=StreamRecorder(), size=4096)
    assert sent == expected[0] + event + b"".join(expected[1:-2])
