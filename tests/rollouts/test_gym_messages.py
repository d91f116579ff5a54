"""Messages as items: what NeMo Gym's converter makes of them, and what it loses and we keep."""

from typing import Any

import pytest
from openai.types import responses
from pydantic import TypeAdapter

from switchyard_py.rollouts.gym_messages import Item, ItemIds, is_generated, message_items, tool_item
from switchyard_py.rollouts.refusal import Refusal

OUTPUT_ITEM: TypeAdapter[Any] = TypeAdapter(responses.ResponseOutputItem)
INPUT_ITEM: TypeAdapter[Any] = TypeAdapter(responses.ResponseInputItemParam)
ANYTHING = {"id": "?"}


def items(message: dict[str, Any], *, as_original: bool = False) -> list[Item]:
    """The items of a message, which OpenAI's own models must take; their random ids replaced by `?`."""
    made = message_items(message, ItemIds(), as_original=as_original)
    for item in made:
        (OUTPUT_ITEM if is_generated(item) else INPUT_ITEM).validate_python(item)
    return [item | ANYTHING if item["type"] in ("reasoning", "message") and "id" in item else item for item in made]


def said(text: str) -> Item:
    part: Item = {"type": "output_text", "text": text, "annotations": [], "logprobs": None}
    return {"type": "message", "id": "?", "role": "assistant", "content": [part], "status": "completed"}


def thought(*texts: str) -> Item:
    summary = [{"type": "summary_text", "text": text} for text in texts]
    return {"type": "reasoning", "id": "?", "summary": summary, "encrypted_content": None}


def called(call_id: str, name: str, arguments: str) -> Item:
    names = {"call_id": call_id, "name": name, "arguments": arguments}
    return {"type": "function_call", **names, "id": call_id, "status": "completed"}


def tool_call(call_id: str, name: str, arguments: Any, **fields: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}, **fields}


@pytest.mark.parametrize("as_original", [False, True])
@pytest.mark.parametrize("role", ["user", "system", "developer"])
@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("  hi ", "  hi "),
        (None, ""),
        ([], ""),
        ([{"type": "text", "text": "a", "cache_control": {}}, {"type": "x", "text": " b"}], "a b"),
    ],
)
def test_what_is_said_to_the_model_is_one_message(role: str, content: Any, text: str, *, as_original: bool) -> None:
    message = {"role": role, "content": content, "name": "dropped"}
    assert items(message, as_original=as_original) == [{"type": "message", "role": role, "content": text}]


@pytest.mark.parametrize("as_original", [False, True])
def test_a_tool_result_is_one_item(*, as_original: bool) -> None:
    message = {"role": "tool", "tool_call_id": "c1", "name": "bash", "content": [{"type": "text", "text": "out"}]}
    assert items(message, as_original=as_original) == [
        {"type": "function_call_output", "call_id": "c1", "output": "out", "id": None, "status": "completed"}
    ]


@pytest.mark.parametrize("as_original", [False, True])
@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"content": "hello"}, [said("hello")]),
        ({"content": None}, [said("")]),
        ({}, [said("")]),
        ({"content": "", "tool_calls": None}, [said("")]),
        ({"content": "", "tool_calls": [tool_call("c1", "f", "{}")]}, [called("c1", "f", "{}")]),
        (
            {"content": "so", "tool_calls": [tool_call("c1", "f", '{"a": 1}', index=0), tool_call("c2", "g", "")]},
            [said("so"), called("c1", "f", '{"a": 1}'), called("c2", "g", "")],
        ),
    ],
)
def test_a_reply_is_text_then_calls(message: dict[str, Any], expected: list[Item], *, as_original: bool) -> None:
    assert items({"role": "assistant", **message}, as_original=as_original) == expected


@pytest.mark.parametrize(
    ("message", "whole", "original"),
    [
        ({"content": "hi", "reasoning": "hm"}, [thought("hm"), said("hi")], [said("hi")]),
        ({"content": None, "reasoning_content": "hm"}, [thought("hm")], [said("")]),
        ({"reasoning": "hm", "reasoning_content": "hm"}, [thought("hm")], [said("")]),
        ({"content": "x", "reasoning": "", "reasoning_content": None}, [said("x")], [said("x")]),
        (
            {"reasoning": "hm", "tool_calls": [tool_call("c", "f", "{}")]},
            [thought("hm"), called("c", "f", "{}")],
            [called("c", "f", "{}")],
        ),
        (
            {"content": "<think>a\nb</think>x<think>c</think> y"},
            [said("<think>a\nb</think>x<think>c</think> y")],
            [thought("a\nb", "c"), said("x y")],
        ),
        ({"content": "<think>a</think>"}, [said("<think>a</think>")], [thought("a")]),
        ({"content": "<think>open"}, [said("<think>open")], [said("<think>open")]),
    ],
)
def test_reasoning_is_kept_and_text_is_not_cut(message: Item, whole: list[Item], original: list[Item]) -> None:
    message = {"role": "assistant", **message}
    assert items(message) == whole
    assert items(message, as_original=True) == original


def test_a_refusal_is_kept() -> None:
    message = {"role": "assistant", "content": None, "refusal": "no"}
    assert items(message) == [said("") | {"content": [{"type": "refusal", "refusal": "no"}]}]
    assert items(message, as_original=True) == [said("")]


def test_pictures_are_kept() -> None:
    url = "data:image/png;base64,AA=="
    content = [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
        {"type": "image_url", "image_url": url},
    ]
    parts = [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": url, "detail": "low"},
        {"type": "input_image", "image_url": url, "detail": "auto"},
    ]
    assert items({"role": "user", "content": content})[0]["content"] == parts
    assert items({"role": "tool", "tool_call_id": "c", "content": content})[0]["output"] == parts
    with pytest.raises(Refusal, match=r"N2: .*image_url"):
        items({"role": "user", "content": content}, as_original=True)


@pytest.mark.parametrize(
    ("message", "rule"),
    [
        ({}, "N1"),
        ({"role": "function", "content": "x"}, "N1"),
        ({"role": "user", "content": 3}, "N2"),
        ({"role": "user", "content": [{"type": "input_audio"}]}, "N2"),
        ({"role": "user", "content": [3]}, "N2"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "N2"),
        ({"role": "assistant", "content": [{"type": "image_url", "image_url": "x"}]}, "N2"),
        ({"role": "tool", "content": "x"}, "N4"),
        ({"role": "tool", "content": "x", "tool_call_id": ""}, "N4"),
        ({"role": "assistant", "tool_calls": [tool_call("", "f", "{}")]}, "N3"),
        ({"role": "assistant", "tool_calls": [tool_call("c", "f", {})]}, "N3"),
        ({"role": "assistant", "tool_calls": "c"}, "N3"),
    ],
)
def test_other_messages_are_refused(message: dict[str, Any], rule: str) -> None:
    for as_original in (False, True):
        with pytest.raises(Refusal) as refused:
            items(message, as_original=as_original)
        assert refused.value.rule == rule


def test_ids_are_random_unless_seeded() -> None:
    def ids(seed: int | None) -> list[str]:
        make = ItemIds(seed)
        return [make("msg"), make("rs")]

    first, second = ids(None), ids(None)
    assert len({*first, *second}) == 4
    assert [(id_[:-32], len(id_.removeprefix("msg_").removeprefix("rs_"))) for id_ in first] == [
        ("msg_", 32),
        ("rs_", 32),
    ]
    assert ids(7) == ids(7) != ids(8)


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        (
            {"id": "f", "description": "d", "inputSchema": {"jsonSchema": {"type": "object"}}},
            {"name": "f", "description": "d", "parameters": {"type": "object"}},
        ),
        ({"id": "f", "description": ""}, {"name": "f", "description": "", "parameters": None}),
        ({"id": "f", "inputSchema": None}, {"name": "f", "description": None, "parameters": None}),
    ],
)
def test_a_tool_is_a_function_tool(tool: dict[str, Any], expected: dict[str, Any]) -> None:
    made = tool_item(tool)
    assert made == {"type": "function", "strict": None, **expected}
    responses.FunctionTool.model_validate(made)
