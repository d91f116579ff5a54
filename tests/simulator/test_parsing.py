import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchyard_py.simulator.parsing import ParsedReply, StreamParser, ToolCall, parse_reply

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "}{\\"", "b": [1, {}]}}\n</tool_call>'
PIECES = st.lists(
    st.one_of(
        st.sampled_from(["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool", "</", "\n\n", CALL]),
        st.text('ab<>/ {}"', max_size=4),
    ),
    max_size=8,
)


def stream(parts: list[str], *, thinking: bool, tools: bool) -> ParsedReply:
    """The reply as an agent puts it together."""
    parser = StreamParser(thinking=thinking, tools=tools)
    reasoning = content = ""
    calls: dict[int, list[str]] = {}
    for index, part in enumerate(parts):
        delta = parser.finish(part) if index == len(parts) - 1 else parser.push(part)
        reasoning += delta.reasoning
        content += delta.content
        for call in delta.calls:
            known = calls.setdefault(call.index, ["", ""])
            known[0] += call.name or ""
            known[1] += call.arguments
    assert parser.has_calls == bool(calls)
    return ParsedReply(reasoning or None, content or None, [ToolCall(*calls[index]) for index in sorted(calls)])


def cut(text: str, places: list[int]) -> list[str]:
    bounds = [0, *sorted({place % (len(text) + 1) for place in places}), len(text)]
    return [text[start:end] for start, end in pairwise(bounds)]


@given(PIECES, st.lists(st.integers(0, 500), max_size=20), st.booleans(), st.booleans())
def test_how_the_text_is_cut_does_not_matter(pieces: list[str], places: list[int], thinking: bool, tools: bool) -> None:
    text = "".join(pieces)
    whole = stream([text], thinking=thinking, tools=tools)
    assert stream(cut(text, places), thinking=thinking, tools=tools) == whole
    assert stream([*text, ""], thinking=thinking, tools=tools) == whole


@given(PIECES, st.booleans())
def test_stream_and_reply_agree_where_no_tool_can_be_called(pieces: list[str], thinking: bool) -> None:
    text = "".join(pieces)
    parsed = parse_reply(text, thinking=thinking, tools=False, forced=False)
    assert stream([text], thinking=thinking, tools=False) == parsed._replace(content=parsed.content or None)


@given(st.lists(st.sampled_from(["", "x", " \n"]), min_size=1, max_size=3), st.integers(1, 3))
def test_stream_and_reply_agree_on_complete_calls(between: list[str], count: int) -> None:
    text = "<think>why</think>hello" + between[0] + "\n".join([CALL] * count)
    parsed = parse_reply(text, thinking=True, tools=True, forced=False)
    assert stream([text], thinking=True, tools=True) == parsed
    assert len(parsed.calls) == count


@pytest.mark.parametrize(
    ("arguments", "streamed"),
    [
        ('{"a":1}', '{"a":1}'),
        ("false", "false"),
        ('"x, }"', '"x, }"'),
        ("[1, 2]", "[1, 2]"),
        ("{ }", "{ }"),
        ("7", "7"),
    ],
)
def test_arguments_are_normalised_only_in_the_whole_reply(arguments: str, streamed: str) -> None:
    text = f'<tool_call>{{"name": "f", "arguments": {arguments}}}</tool_call>'
    assert stream([*text, ""], thinking=False, tools=True).calls == [ToolCall("f", streamed)]
    parsed = parse_reply(text, thinking=False, tools=True, forced=False)
    assert parsed.calls == [ToolCall("f", json.dumps(json.loads(arguments)))]


def test_a_broken_call_is_text_in_the_whole_reply_and_a_call_in_the_stream() -> None:
    text = '<tool_call>\n{"name": "f", "arguments": {"a": P}\n</tool_call>'
    assert parse_reply(text, thinking=False, tools=True, forced=False) == ParsedReply(None, text, [])
    assert stream([*text, ""], thinking=False, tools=True).calls == [ToolCall("f", '{"a": P}')]


def test_a_call_without_a_name_is_not_counted() -> None:
    parser = StreamParser(thinking=False, tools=True)
    assert parser.push("<tool_call>{}</tool_call>").calls == []
    assert not parser.has_calls
    assert [call.index for call in parser.push(CALL + CALL).calls] == [0, 1]
    assert parser.push("<tool_call>").calls == []
    assert parser.has_calls


def test_a_forced_call_leaves_an_empty_text() -> None:
    assert parse_reply(CALL, thinking=False, tools=True, forced=True).content == ""
    assert parse_reply("\n\n" + CALL, thinking=False, tools=True, forced=False).content is None
