import json
from typing import Any

import pytest

from switchyard_py.simulator.replies import Question, Replies
from switchyard_py.simulator.requests import ChatBody
from switchyard_py.simulator.settings import ScriptedReply

TOOLS = [
    {
        "type": "function",
        "function": {"name": "first", "parameters": {"properties": {"n": {"const": 7}}, "required": ["n"]}},
    },
    {"type": "function", "function": {"name": "second"}},
]
ASKED: list[dict[str, Any]] = [{"role": "user", "content": "weather in Paris"}]
ANSWERED: list[dict[str, Any]] = [*ASKED, {"role": "assistant", "tool_calls": []}, {"role": "tool", "content": "rain"}]


def question(messages: list[dict[str, Any]] = ASKED, **fields: Any) -> Question:
    return Question.of_chat(ChatBody.model_validate({"messages": messages, **fields}), thinking=False)


def say(asked: Question, *scripted: dict[str, Any], call: int = 1, request_id: str | None = None) -> str:
    replies = Replies([ScriptedReply.model_validate(reply) for reply in scripted])
    return replies.choose(call, request_id, [asked])[0][0]


def test_the_first_tool_is_called_before_there_is_a_result() -> None:
    assert say(question(tools=TOOLS)) == '<tool_call>\n{"name": "first", "arguments": {"n": 7}}\n</tool_call>'
    assert "rain" in say(question(ANSWERED, tools=TOOLS))
    assert "<tool_call>" in say(question([*ANSWERED, *ASKED], tools=TOOLS))


def test_the_tool_choice_is_obeyed() -> None:
    named = {"type": "function", "function": {"name": "second"}}
    assert '"second"' in say(question(ANSWERED, tools=TOOLS, tool_choice=named))
    assert '"first"' in say(question(ANSWERED, tools=TOOLS, tool_choice="required"))
    assert "<tool_call>" not in say(question(tools=TOOLS, tool_choice="none"))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"structured_outputs": {"choice": ["yes", "no"]}}, "yes"),
        ({"structured_outputs": {"regex": "hi( all){2}"}}, "hi all all"),
        ({"structured_outputs": {"json": {"const": 3}}}, "3"),
        ({"structured_outputs": {"json": '{"const": 3}'}}, "3"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": ["a"]}}}}, '"a"'),
        ({"response_format": {"type": "json_object"}}, "{}"),
        ({"structured_outputs": {"json": {"$ref": "#/nowhere"}}}, "{}"),
    ],
)
def test_a_constrained_reply_fits(fields: dict[str, Any], expected: str) -> None:
    assert say(question(**fields)) == expected


def test_arguments_fall_back_to_an_empty_object() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"$ref": "#/nowhere"}}}
    assert '"arguments": {}' in say(question(tools=[tool]))


def test_choices_and_seeds_vary_unless_greedy() -> None:
    def texts(**fields: Any) -> list[str]:
        return Replies([]).choose(1, None, [question(n=2, **fields)])[0]

    assert len(set(texts())) == 2
    assert len(set(texts(temperature=0))) == 1
    assert texts(seed=1) != texts(seed=2)


def test_echoed_text_cannot_end_the_thinking() -> None:
    assert "</think>" not in say(question([{"role": "user", "content": "a</think>b"}]))


def test_replies_without_a_condition_are_used_in_order() -> None:
    replies = Replies([ScriptedReply(content="one"), ScriptedReply(raw="two")])
    said = [replies.choose(call, None, [question()])[0][0] for call in (1, 2, 3)]
    assert said[:2] == ["one", "two"]
    assert "you said" in said[2]


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ({"call": 2}, False),
        ({"call": 1}, True),
        ({"request_id": "r"}, True),
        ({"request_id": "s"}, False),
        ({"contains": "Paris"}, True),
        ({"contains": "Rome"}, False),
        ({"contains": "Paris", "call": 2}, False),
        ({"tool": "second"}, True),
        ({"tool": "third"}, False),
    ],
)
def test_a_condition_decides(when: dict[str, Any], holds: bool) -> None:
    assert (say(question(tools=TOOLS), {"when": when, "content": "scripted"}, request_id="r") == "scripted") is holds


def test_scripted_parts_are_written_as_the_model_would() -> None:
    body = ChatBody.model_validate({"messages": ASKED})
    asked = Question.of_chat(body, thinking=True)
    calls = [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": "{oops"}]
    said = say(asked, {"thinking": "so", "content": "hi", "tool_calls": calls})
    first = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    assert (
        said == f'<think>\nso\n</think>\n\nhi\n{first}\n<tool_call>\n{{"name": "g", "arguments": {{oops}}\n</tool_call>'
    )


def test_a_forced_call_follows_the_thinking_at_once() -> None:
    body = ChatBody.model_validate({"messages": ASKED, "tools": TOOLS, "tool_choice": "required"})
    assert "</think><tool_call>" in say(Question.of_chat(body, thinking=True))


def test_arguments_are_json() -> None:
    call = say(question(tools=TOOLS)).removeprefix("<tool_call>").removesuffix("</tool_call>")
    assert json.loads(call)["arguments"] == {"n": 7}
