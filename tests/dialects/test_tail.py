"""No agent sees a complete tool call or the end of a reply before the record is committed, and nothing waits longer."""

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from switchyard_py.dialects.tail import CompleteJSON, TailHold
from switchyard_py.engines.vllm import Chunk, Part
from switchyard_py.rawjson import encode, split_object

ARGUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.floats(0, 1) | st.text('ab"\\[]{},: \n\u00e9', max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('ab"\\}', max_size=3), inner, max_size=3),
    max_leaves=6,
)
CONTAINERS = st.dictionaries(st.text('ab"\\}', max_size=3), ARGUMENTS, max_size=3) | st.lists(ARGUMENTS, max_size=3)


def begins_with_json(text: str) -> bool:
    try:
        json.JSONDecoder().raw_decode(text.lstrip())
    except ValueError:
        return False
    return True


@given(ARGUMENTS, st.sampled_from([None, 2]), st.sampled_from(["", " ", "\n\t"]), st.sampled_from(["", " ", "{", "x"]))
def test_a_json_value_is_complete_from_its_last_character_on(
    value: object, indent: int | None, before: str, behind: str
) -> None:
    text = before + json.dumps(value, indent=indent) + behind
    complete = CompleteJSON()
    for end in range(1, len(text) + 1):
        seen = text[:end]
        bare = seen.strip() != "" and seen.lstrip()[0] not in '{["'
        assert complete.feed(seen[-1]) == (bare or begins_with_json(seen)), seen
        assert complete.complete == CompleteJSON().feed(seen)


@pytest.mark.parametrize("text", ["x", "1", "t", "-", "}", "]", "{]", '""', " null"])
def test_what_may_be_complete_counts_as_complete(text: str) -> None:
    assert CompleteJSON().feed(text)


@dataclass(frozen=True)
class Step:
    """One chunk as vLLM sends them: of one choice, saying one thing."""

    choice: int = 0
    content: str | None = None
    reasoning: str | None = None
    call: int | None = None
    name: str | None = None
    arguments: str | None = None
    finish: bool = False
    second_call: int | None = None
    """Index of another call in the same delta."""

    def chunk(self) -> Chunk:
        delta: dict[str, Any] = {}
        if self.content is not None:
            delta["content"] = self.content
        if self.reasoning is not None:
            delta["reasoning"] = self.reasoning
        if self.call is not None:
            function = {"name": self.name} if self.name else {}
            if self.arguments is not None:
                function["arguments"] = self.arguments
            delta["tool_calls"] = [{"index": self.call, "function": function}]
            if self.second_call is not None:
                delta["tool_calls"].append({"index": self.second_call, "function": {"name": "g", "arguments": ""}})
        fields = split_object(encode({"index": self.choice, "finish_reason": "stop" if self.finish else None}))
        part = Part(self.choice, fields, split_object(encode(delta)), self.content, self.finish)
        return Chunk(split_object(encode({"id": str(id(self))})), [part])

    @property
    def speaks(self) -> bool:
        return bool(self.content or self.reasoning)


@st.composite
def streams(draw: st.DrawFn) -> list[Step]:
    """One to three calls in one or two choices, their arguments in pieces, anything in between."""
    choices = draw(st.integers(1, 2))
    rest = {(choice, call): json.dumps(draw(CONTAINERS)) for choice in range(choices) for call in range(3)}
    steps: list[Step] = [Step(content=draw(st.sampled_from(["", "hi", "\n"])))] * draw(st.booleans())
    kinds = st.sampled_from(["piece"] * 12 + ["name"] * 2 + ["empty"] * 2 + ["content", "reasoning", "next", "both"])
    call = 0
    for kind in draw(st.lists(kinds, max_size=25)):
        choice = draw(st.integers(0, choices - 1)) if draw(st.integers(0, 5)) == 0 else 0
        call = min(2, call + (kind == "next"))
        if kind == "piece":
            text = rest[choice, call]
            cut = draw(st.integers(0, 4))
            rest[choice, call] = text[cut:]
            steps.append(Step(choice, call=call, arguments=text[:cut]))
        elif kind in ("name", "next"):
            steps.append(Step(choice, call=call, name="f", arguments=draw(st.sampled_from([None, ""]))))
        elif kind == "both":
            steps.append(Step(choice, call=call, arguments="", second_call=2 if call < 2 else 1))
        elif kind == "empty":
            steps.append(Step(choice))
        else:
            text = draw(st.sampled_from(["", " ", "x"]))
            steps.append(Step(choice, content=text) if kind == "content" else Step(choice, reasoning=text))
    return [*steps, *(Step(choice, finish=True) for choice in range(choices))]


def released_after_each(steps: list[Step]) -> list[int]:
    """How many chunks an agent may have seen after each step, by the rule of the chat dialect.

    The newest argument fragment is kept back by one. From the fragment on that completes the arguments, or behind which
    another call, text or a finish chunk arrives, everything waits.
    """
    counts: list[int] = []
    newest: int | None = None
    call: tuple[int, int] | None = None
    arguments = ""
    closed: int | None = None
    for number, step in enumerate(steps):
        its_call = None if step.call is None else (step.choice, step.call)
        if closed is None:
            another = call is not None and (its_call not in (None, call) or step.speaks)
            if step.finish or another or step.second_call is not None:
                closed = number if newest is None else newest
        if closed is None and its_call is not None:
            call = its_call
            if step.arguments:
                newest = number
                arguments += step.arguments
                if begins_with_json(arguments):
                    closed = number
        counts.append(next(bound for bound in (closed, newest, number + 1) if bound is not None))
    return counts


def call_step(arguments: str | None = None, call: int = 0, **fields: Any) -> Step:
    return Step(call=call, arguments=arguments, **fields)


END = Step(finish=True)


@given(streams())
@example([call_step(name="f", arguments=""), call_step("{}"), END])
@example([call_step(name="f", arguments="{}"), END])
@example([call_step(name="f"), END])
@example([call_step(name="f"), Step(content="x"), call_step("{}"), END])
@example([call_step(name="f"), call_step('{"a'), Step(), call_step('":1'), Step(), call_step("}"), END])
@example([call_step(name="f"), call_step('{"a":1'), call_step(name="g", call=1), call_step("{}", call=1), END])
@example([call_step(name="f"), call_step('{"a":1'), Step(choice=1, content="x"), END, Step(choice=1, finish=True)])
@example([call_step(name="f"), call_step('{"a":1'), END])
@example([call_step(name="f"), call_step("7"), call_step("8"), END])
@example([Step(content="x"), call_step("", name="f", second_call=1), call_step("{}"), END])
@example([call_step('{"a', second_call=1), call_step('":1}'), END])
@example([Step(content="text"), Step(reasoning="r"), END, Step(choice=1, content="late"), Step(choice=1, finish=True)])
def test_the_tail_is_held_and_nothing_else(steps: list[Step]) -> None:
    chunks = [step.chunk() for step in steps]
    hold = TailHold()
    released: list[Chunk] = []
    allowed = released_after_each(steps)
    for number, chunk in enumerate(chunks):
        released += hold.feed(chunk)
        assert [id(each) for each in released] == [id(each) for each in chunks[: len(released)]], "in order"
        check_nothing_actionable(steps[: len(released)])
        if bare_arguments(steps[: number + 1]):
            assert len(released) <= allowed[number]
        else:
            assert len(released) == allowed[number]
    assert [id(each) for each in [*released, *hold.tail()]] == [id(each) for each in chunks]


def bare_arguments(steps: list[Step]) -> bool:
    """Whether arguments begin with something whose end cannot be known, such as a number."""
    return any(step.arguments and step.arguments.strip()[:1] in set("-0123456789tfn") for step in steps)


def check_nothing_actionable(seen: list[Step]) -> None:
    assert not any(step.finish for step in seen)
    calls: dict[tuple[int, int], str] = {}
    for step in seen:
        if step.call is not None:
            key = step.choice, step.call
            calls[key] = calls.get(key, "") + (step.arguments or "")
        assert not (calls and step.speaks), "text behind a call says that the call is complete"
    assert len(calls) <= 1, "a second call says that the first is complete"
    assert not any(map(begins_with_json, calls.values()))


def legacy(arguments: str) -> Chunk:
    delta = {"function_call": {"name": "f", "arguments": arguments}}
    return Chunk({}, [Part(0, {}, split_object(encode(delta)), None, finished=False)])


def test_the_older_function_call_is_held_as_well() -> None:
    hold = TailHold()
    chunks = [legacy(text) for text in ("", '{"a"', ":1", "}", "")]
    assert [len(hold.feed(chunk)) for chunk in chunks] == [1, 0, 1, 1, 0]
    assert hold.tail() == chunks[3:]


def test_odd_calls_are_held_without_a_fault() -> None:
    for calls in ([5], {"index": 0}, [{"index": "x", "function": 5}], [{"function": {"arguments": 7}}], "text"):
        hold = TailHold()
        chunk = Chunk({}, [Part(0, {}, split_object(encode({"tool_calls": calls})), None, finished=False)])
        released = hold.feed(chunk)
        end = END.chunk()
        assert hold.feed(end) == []
        assert [*released, *hold.tail()] == [chunk, end]


@pytest.mark.parametrize("arguments", [{"a": 1}, [], {}, 7, True])
def test_arguments_that_are_no_text_are_complete_and_so_held(arguments: object) -> None:
    call = {"index": 0, "function": {"name": "f", "arguments": arguments}}
    hold = TailHold()
    chunk = Chunk({}, [Part(0, {}, split_object(encode({"tool_calls": [call]})), None, finished=False)])
    assert hold.feed(chunk) == []
    assert hold.tail() == [chunk]


def test_a_chunk_without_choices_passes_until_the_end_is_held() -> None:
    hold = TailHold()
    notice, usage, end = Chunk({"usage": b"null"}), Chunk({"usage": b"{}"}), END.chunk()
    assert hold.feed(notice) == [notice]
    assert hold.feed(end) == []
    assert hold.feed(usage) == []
    assert hold.tail() == [end, usage]
