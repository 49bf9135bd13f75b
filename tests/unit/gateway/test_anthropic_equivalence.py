"""However it is said and the bytes are cut: a streamed message is the one that a plain reply would have been."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from openclaw_gateway.anthropic import replies
from openclaw_gateway.anthropic.streams import MessageStream
from openclaw_gateway.recording import StreamRecorder
from openclaw_gateway.relay import End, Relay
from tests.fakes import engine_replies

WORDS = st.text(st.characters(exclude_characters="<>\x00", exclude_categories=["Cs"]), max_size=12)
CALL = st.builds(
    lambda name, value: f"<call>{name} {json.dumps({'a': value})}</call>",
    st.from_regex(r"[a-z]{1,5}", fullmatch=True),
    WORDS,
)
REPLY = st.builds(
    lambda thought, text, calls: (f"<think>{thought}</think>" if thought else "") + text + "".join(calls),
    WORDS,
    WORDS,
    st.lists(CALL, max_size=3),
)


def run_of(text, limit):
    said = engine_replies.pieces(text)
    tokens = [*(ord(piece.character) for piece in said), engine_replies.EOS]
    body = {
        "model": "policy",
        "logprobs": True,
        "return_input_ids_in_sglext": True,
        "return_output_ids_in_sglext": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    return engine_replies.Generation("rid", body, [1, 2, 3], tokens, limit, said=said)


def stream_of(run):
    yield engine_replies.first_chunk(run)
    while run.finish_reason is None:
        run.advance("0-00000000")
        yield engine_replies.token_chunk(run, len(run.output) - 1)
    yield from engine_replies.closing_chunks(run, with_ids=True)


def assembled(sent):
    """What a client puts together from the events, by the protocol's rules."""
    message, arguments, ended, is_open = {}, {}, False, False
    for part in filter(None, sent.split(b"\n\n")):
        event = json.loads(part.split(b"\ndata: ", 1)[1])
        match event["type"]:
            case "message_start":
                message = event["message"]
            case "content_block_start":
                assert not is_open and event["index"] == len(message["content"])
                is_open = True
                message["content"].append(event["content_block"])
            case "content_block_delta":
                assert is_open and event["index"] == len(message["content"]) - 1
                block, delta = message["content"][event["index"]], event["delta"]
                if delta["type"] == "input_json_delta":
                    arguments[event["index"]] = arguments.get(event["index"], "") + delta["partial_json"]
                else:
                    key = delta["type"].removesuffix("_delta")
                    block[key] += delta[key]
            case "content_block_stop":
                assert is_open and event["index"] == len(message["content"]) - 1
                is_open = False
            case "message_delta":
                assert not is_open
                message |= event["delta"]
                message["usage"] = event["usage"]
            case "message_stop":
                ended = True
    for index, text in arguments.items():
        message["content"][index]["input"] = json.loads(text)
    assert ended
    return message


@settings(deadline=None, max_examples=60)
@given(text=REPLY, size=st.integers(1, 400), cut=st.integers(1, 60))
def test_streamed_message_equals_the_plain_one(text, size, cut):
    run = run_of(text, limit=1000 if "<call>" in text else cut)
    data = b"".join(stream_of(run))
    relay, stream, sent = Relay(StreamRecorder(), cut_logprobs=True, cut_usage=False), MessageStream(), b""
    for at in range(0, len(data), size):
        sent += stream.feed(relay.feed(data[at : at + size]))
    sent += stream.feed(relay.held())
    assert relay.end is End.DONE
    plain = replies.message(engine_replies.completion(run, "0-00000000"))
    assert assembled(sent) == plain
