"""White space that only leads up to a tool call is dropped, as in buffered replies; everything else passes in order."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_oracle import chunks_of, expected_chunks
from wire_recordings import recording

from switchyard_py.engines.vllm import Chunk, StreamHarvest, Wants, WhitespaceHold
from switchyard_py.upstream import SSEReader

Delta = dict[str, Any]
CALL: Delta = {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}
IDS = Wants(token_ids=True)


def chunk(delta: Delta, *, index: int = 0, finish: str | None = None) -> bytes:
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return json.dumps({"id": "c", "choices": [choice]}).encode()


def content(text: str, **more: Any) -> bytes:
    return chunk({"content": text}, **more)


FINISH = chunk({}, finish="stop")


class Passed:
    """What passed of some events, with the number of the event after which it did."""

    def __init__(self, *events: bytes, wants: Wants = Wants(), on: bool = True) -> None:  # noqa: B008
        harvest, hold = StreamHarvest(wants), WhitespaceHold(wants, on=on)
        self.after: list[int] = []
        self.deltas: list[Delta] = []
        for number, event in enumerate([*events, b"[DONE]"]):
            for each in harvest.feed(event):
                self._take(number, hold.feed(each))
        self._take(len(events), hold.end())
        self.dropped = hold.dropped

    def _take(self, number: int, chunks: list[Chunk]) -> None:
        for each in chunks:
            self.after.append(number)
            self.deltas.append(json.loads(each.encode())["choices"][0]["delta"])


def test_white_space_before_a_call_is_dropped() -> None:
    passed = Passed(chunk({"role": "assistant", "content": ""}), content("\n"), content("\n "), chunk(CALL), FINISH)
    assert passed.deltas == [{"role": "assistant", "content": ""}, CALL, {}]
    assert passed.after == [0, 3, 5]
    assert passed.dropped


def test_white_space_before_text_is_released_in_its_place() -> None:
    passed = Passed(content(" "), content("\n"), content("text"), content(" "), chunk(CALL), FINISH)
    assert [delta.get("content") for delta in passed.deltas] == [" ", "\n", "text", " ", None, None]
    assert passed.after == [2, 2, 2, 3, 4, 6]
    assert not passed.dropped


def test_white_space_that_is_the_whole_reply_is_kept() -> None:
    passed = Passed(content(" "), FINISH)
    assert passed.deltas == [{"content": " "}, {}]
    assert not passed.dropped
    at_the_end = Passed(content(" "), content("\n", finish="stop"))
    assert at_the_end.deltas == [{"content": " "}, {"content": "\n"}]


def test_white_space_behind_a_call_is_dropped_as_well() -> None:
    passed = Passed(chunk(CALL), content("\n"), content(" ", finish="tool_calls"))
    assert passed.deltas == [CALL, {}]
    assert passed.dropped


def test_text_behind_a_call_keeps_the_white_space_before_it() -> None:
    passed = Passed(content("\n"), chunk(CALL), content(" "), content("text"), FINISH)
    assert passed.deltas == [CALL, {"content": " "}, {"content": "text"}, {}]


def test_white_space_in_the_very_chunk_of_the_call_is_dropped() -> None:
    assert Passed(content("\n"), chunk({"content": "\n", **CALL}), FINISH).deltas == [CALL, {}]
    assert Passed(chunk({"content": None, **CALL}), FINISH).deltas == [{"content": None, **CALL}, {}]
    assert Passed(chunk({"content": "x", **CALL}), FINISH).deltas == [{"content": "x", **CALL}, {}]


def test_reasoning_is_not_held_up() -> None:
    passed = Passed(chunk({"reasoning": "r"}), content("\n"), chunk({"reasoning": "s"}), chunk(CALL), FINISH)
    assert passed.deltas == [{"reasoning": "r"}, {"reasoning": "s"}, CALL, {}]
    assert passed.after == [0, 2, 3, 5]


def test_what_a_chunk_says_beside_white_space_stays() -> None:
    passed = Passed(chunk({"role": "assistant", "content": "\n"}), chunk(CALL), FINISH)
    assert passed.deltas == [{"role": "assistant"}, CALL, {}]


def test_an_empty_list_of_calls_is_no_call() -> None:
    passed = Passed(content("\n"), chunk({"tool_calls": []}), content("text"), FINISH)
    assert [delta.get("content") for delta in passed.deltas if delta.get("content")] == ["\n", "text"]
    assert not passed.dropped


def test_whoever_asked_for_ids_gets_every_chunk_in_the_engine_s_order() -> None:
    events = [content("\n"), chunk({}), chunk({"reasoning": "r"}), chunk(CALL), chunk({}), FINISH]
    for wants in (IDS, Wants(log_probs=True)):
        passed = Passed(*events, wants=wants)
        assert passed.deltas == [{}, {}, {"reasoning": "r"}, CALL, {}, {}]
        assert passed.dropped
    text = Passed(content("\n"), chunk({}), content("text"), FINISH, wants=IDS)
    assert text.deltas == [{"content": "\n"}, {}, {"content": "text"}, {}]


def test_each_choice_has_its_own_beginning() -> None:
    passed = Passed(
        content("\n"),
        content(" ", index=1),
        content("text", index=1),
        chunk(CALL),
        FINISH,
        chunk({}, index=1, finish="stop"),
    )
    assert passed.deltas == [{"content": " "}, {"content": "text"}, CALL, {}, {}]


def test_a_chunk_of_several_choices_holds_nothing_up() -> None:
    both = {"choices": [{"index": index, "delta": {"content": " "}, "finish_reason": None} for index in (0, 1)]}
    passed = Passed(content("\n"), json.dumps(both).encode(), FINISH)
    assert passed.after[:2] == [1, 1]
    assert passed.deltas[0] == {"content": "\n"}


@pytest.mark.parametrize("name", ["trained_tool_auto_stream", "trained_hello_stream", "stop_string_stream"])
def test_as_engine_passes_everything_at_once(name: str) -> None:
    body = recording(name).body
    harvest, hold = StreamHarvest(Wants(usage=True)), WhitespaceHold(Wants(), on=False)
    shown: list[Any] = []
    for event in [*map(json.dumps, chunks_of(body)), "[DONE]"]:
        for each in harvest.feed(event.encode()):
            assert hold.feed(each) == [each]
            shown.append(json.loads(each.encode()))
    asked = {"stream_options": {"include_usage": True}}
    assert shown == expected_chunks(body, asked, whitespace=True)
    assert hold.end() == []
    assert not hold.dropped


# What a step adds to a choice's text, or C for a call.
STEPS = {
    " ": content(" "),
    "\n": content("\n"),
    "x": content("x"),
    "": chunk({}),
    "C": chunk(CALL),
}


@given(st.lists(st.sampled_from(list(STEPS)), max_size=10), st.booleans())
def test_the_text_that_passes_is_the_one_of_a_buffered_reply(steps: list[str], asked_for_ids: bool) -> None:
    said = "".join(steps)
    lead = said.partition("x")[0]
    dropped = len(lead) if lead == said and "C" in lead else lead.rfind("C") + 1
    passed = Passed(*(STEPS[step] for step in steps), FINISH, wants=IDS if asked_for_ids else Wants())
    assert "".join(delta.get("content", "") for delta in passed.deltas) == said[dropped:].replace("C", "")
    assert passed.dropped == bool(lead[:dropped].strip("C"))
    if asked_for_ids:
        assert len(passed.deltas) == len(steps) + 1


def test_a_record_keeps_the_white_space_that_an_agent_was_given() -> None:
    stream = recording("trained_tool_auto_stream").body
    contents = {}
    for drops in (True, False):
        harvest = StreamHarvest(Wants(), drops_whitespace=drops)
        for event in SSEReader().feed(stream):
            if event.data is not None:
                harvest.feed(event.data)
        contents[drops] = harvest.end().choices[0].message.get("content")
    assert contents == {True: None, False: b'"\\n\\n"'}
