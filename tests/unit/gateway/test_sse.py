"""Events are split at blank lines and nowhere else, however the bytes are cut."""

import itertools

import hypothesis.strategies as st
import pytest
from hypothesis import given

from openclaw_gateway import sse

EVENTS = [
    b"data: plain\n\n",
    "data: line\u2028separator \u2029 and \u0085\n\n".encode(),
    b'data: {"a": "\xf0\x9f\x98\x80"}\r\n\r\n',
    b": comment\n\n",
    b"event: x\ndata: one\ndata: two\n\n",
    b"data: cr\r\r",
    b"data: mixed\r\n\n",
    b"data: [DONE]\n\n",
]


@given(st.lists(st.integers(0, 200), max_size=8))
def test_events_are_whole_wherever_the_bytes_are_cut(cuts):
    stream = b"".join(EVENTS)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    splitter = sse.EventSplitter()
    events = [event for a, b in itertools.pairwise(edges) for event in splitter.feed(stream[a:b])]
    assert events + ([splitter.rest()] if splitter.rest() else []) == EVENTS


def test_events_are_whole_byte_by_byte():
    splitter = sse.EventSplitter()
    stream = b"".join(EVENTS)
    events = [event for at in range(len(stream)) for event in splitter.feed(stream[at : at + 1])]
    assert events == EVENTS


def test_rest_is_what_came_after_the_last_event():
    splitter = sse.EventSplitter()
    assert splitter.feed(b"data: a\n\ndata: b") == [b"data: a\n\n"]
    assert splitter.rest() == b"data: b"


@pytest.mark.parametrize(
    ("event", "data"),
    [
        (EVENTS[0], b"plain"),
        (EVENTS[1], "line\u2028separator \u2029 and \u0085".encode()),
        (EVENTS[3], b""),
        (EVENTS[4], b"one\ntwo"),
        (EVENTS[5], b"cr"),
        (b"data:[DONE]\r\n\r\n", b"[DONE]"),
    ],
)
def test_data_of_an_event(event, data):
    assert sse.data(event) == data
