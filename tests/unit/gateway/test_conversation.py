"""Chains: equal for the same words however they are written, different for different words."""

import pytest

from openclaw_gateway.conversation import extend, next_state, outline


def chain(*messages):
    return outline(messages).chain


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"role": "user", "content": "hi"}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}),
        ({"role": "assistant", "content": None}, {"role": "assistant", "content": ""}),
        ({"role": "developer", "content": "x"}, {"role": "system", "content": "x"}),
        ({"role": "assistant", "content": "x"}, {"role": "assistant", "content": " x\n", "reasoning_content": "hm"}),
        (
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}],
            },
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "2", "index": 0, "function": {"name": "f", "arguments": "{ }"}}],
            },
        ),
    ],
)
def test_other_spellings_of_a_message_have_its_chain(one, other):
    assert chain(one) == chain(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([{"role": "user", "content": "a"}], [{"role": "user", "content": "b"}]),
        ([{"role": "user", "content": "a"}], [{"role": "assistant", "content": "a"}]),
        ([{"role": "user", "content": "ab"}], [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]),
        (
            [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"x":1}'}}]}],
            [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"x":2}'}}]}],
        ),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": "a"}]}], [{"role": "user", "content": ""}]),
    ],
)
def test_other_words_have_another_chain(one, other):
    assert chain(*one) != chain(*other)


def test_prefixes_end_at_each_answer_longest_first():
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "v"},
        {"role": "assistant", "content": "b"},
        {"role": "tool", "content": "t"},
        {"role": "user", "content": "w"},
    ]
    seen = outline(messages)
    assert [prefix.length for prefix in seen.prefixes] == [5, 3]
    assert seen.prefixes[1].chain == extend(outline(messages[:2]).chain, messages[2])
    assert seen.tail_start == 5
    assert seen.tail == outline(messages[5:]).chain
    assert next_state(messages, 3) == messages[3:]
    assert next_state(messages[:5], 3) == [messages[3]]


def test_odd_content_is_no_error():
    assert chain({"role": "user", "content": {"odd": 1}}, {"role": "user", "content": [1, None, {"text": 3}]})
    assert chain({"role": "assistant", "content": "\ud800", "tool_calls": [None, {"function": None}]})
