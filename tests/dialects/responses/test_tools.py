"""Tools and choices among them: functions, in namespaces or not; what the engine cannot call is refused or left out."""

from typing import Any

import pytest
from responses_calls import HELLO, inquired, parsed, translated

from switchyard_py.dialects.responses import Responses
from switchyard_py.errors import RequestRefused

FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object"}}
OTHER = FUNCTION | {"name": "g"}
NAMESPACE = {"type": "namespace", "name": "agents", "description": "d", "tools": [FUNCTION, OTHER]}


def sent(tools: Any, choice: Any = None) -> dict[str, Any]:
    chat = translated({"model": "m", "input": "hi", "tools": tools, "tool_choice": choice})
    assert (chat.pop("model"), chat.pop("messages")) == ("m", HELLO)
    return chat


def names(tools: Any, choice: Any = None) -> list[str]:
    return [tool["function"]["name"] for tool in sent(tools, choice).get("tools", [])]


def refused(tools: Any, choice: Any = None) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        sent(tools, choice)
    assert caught.value.code == "invalid_parameter"
    return caught.value


def test_functions_keep_their_own_spelling() -> None:
    schema = b'{"type": "object","properties":{"b":{"maximum":1.0},"a":{}}}'
    body = (
        b'{"input":"hi","tools":[{"type":"function","strict":true,"parameters":%b,"description":"\\u00e9","name":"f",'
        b'"defer_loading":true,"output_schema":{}},{"type":"function","name":"g","description":null}]}' % schema
    )
    inquiry = Responses().inquire(Responses().read(body), {})
    assert bytes(inquiry.fields["tools"]) == (
        b'[{"type":"function","function":{"name":"f","description":"\\u00e9","parameters":%b,"strict":true}},'
        b'{"type":"function","function":{"name":"g"}}]' % schema
    )


def test_functions_of_a_namespace_get_names_of_their_own() -> None:
    assert names([FUNCTION, NAMESPACE, OTHER]) == ["f", "agents__f", "agents__g", "g"]
    namespaced = inquired({"input": "hi", "tools": [FUNCTION, NAMESPACE]}).namespaced
    called = {name: parsed({"namespace": each.namespace, "name": each.name}) for name, each in namespaced.items()}
    assert called == {
        "agents__f": {"namespace": "agents", "name": "f"},
        "agents__g": {"namespace": "agents", "name": "g"},
    }


def namespace(name: str, function: str) -> dict[str, Any]:
    return NAMESPACE | {"name": name, "tools": [FUNCTION | {"name": function}]}


@pytest.mark.parametrize(
    "tools",
    [
        [NAMESPACE, FUNCTION | {"name": "agents__f"}],
        [FUNCTION | {"name": "agents__f"}, NAMESPACE],
        [NAMESPACE, NAMESPACE],
        [namespace("a", "b__c"), namespace("a__b", "c")],
    ],
)
def test_names_that_could_not_be_told_apart_are_refused(tools: Any) -> None:
    assert "Rename one" in str(refused(tools))


def test_functions_of_one_name_are_for_the_engine_to_judge() -> None:
    assert names([FUNCTION, FUNCTION]) == ["f", "f"]


@pytest.mark.parametrize(
    "kind", ["web_search", "web_search_preview_2025_03_11", "image_generation", "local_shell", "tool_search"]
)
def test_tools_that_harnesses_live_without_are_left_out(kind: str) -> None:
    assert names([{"type": kind}, FUNCTION]) == ["f"]
    assert sent([{"type": kind}], "auto") == {}


@pytest.mark.parametrize(
    "kind", ["custom", "file_search", "code_interpreter", "computer_use_preview", "mcp", "shell", "apply_patch", "new"]
)
def test_tools_the_engine_cannot_call_are_refused(kind: str) -> None:
    error = refused([FUNCTION, {"type": kind, "name": "x"}])
    assert error.param == "tools[1]"
    assert kind in str(error)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ({"type": "function", "name": "f"}, {"type": "function", "function": {"name": "f"}}),
        (
            {"type": "function", "name": "f", "namespace": "agents"},
            {"type": "function", "function": {"name": "agents__f"}},
        ),
    ],
)
def test_tool_choice(choice: Any, expected: Any) -> None:
    chat = sent([FUNCTION, NAMESPACE], choice)
    assert chat["tool_choice"] == expected
    assert len(chat["tools"]) == 3


def test_tools_that_are_not_allowed_are_not_offered() -> None:
    allowed = [{"type": "function", "name": "g"}, {"type": "function", "name": "f", "namespace": "agents"}]
    choice = {"type": "allowed_tools", "mode": "required", "tools": [*allowed, {"type": "web_search"}]}
    chat = sent([FUNCTION, OTHER, NAMESPACE], choice)
    assert [tool["function"]["name"] for tool in chat["tools"]] == ["g", "agents__f"]
    assert chat["tool_choice"] == "required"
    assert sent([FUNCTION], choice | {"mode": "auto"}) == {}


def test_without_tools_there_is_nothing_to_choose() -> None:
    # vLLM answers 400 to both an empty list and a choice without tools. Codex sends both to compact its history.
    for choice in ("auto", "none"):
        assert sent([], choice) == sent(None, choice) == {}
    assert sent(None, "required") == {"tool_choice": "required"}


@pytest.mark.parametrize(
    ("tools", "choice", "where", "says"),
    [
        ({}, None, "tools", "must be an array"),
        (["f"], None, "tools[0]", "must be an object"),
        ([{"name": "f"}], None, "tools[0].type", "must be a string"),
        ([{"type": "function"}], None, "tools[0].name", "must be a string"),
        ([{"type": "namespace", "tools": []}], None, "tools[0].name", "must be a string"),
        ([{"type": "namespace", "name": "n"}], None, "tools[0].tools", "must be an array"),
        ([NAMESPACE | {"tools": [NAMESPACE]}], None, "tools[0].tools[0]", "namespace"),
        ([NAMESPACE | {"tools": [{"type": "custom"}]}], None, "tools[0].tools[0]", "custom"),
        ([NAMESPACE | {"tools": [{"type": "function"}]}], None, "tools[0].tools[0].name", "must be a string"),
        ([FUNCTION], "any", "tool_choice", "auto, none, required"),
        ([FUNCTION], 5, "tool_choice", "auto, none, required"),
        ([FUNCTION], {"type": "web_search_preview"}, "tool_choice", "auto, none, required"),
        ([FUNCTION], {"type": "function"}, "tool_choice.name", "must be a string"),
        ([FUNCTION], {"type": "allowed_tools"}, "tool_choice.tools", "must be an array"),
        ([FUNCTION], {"type": "allowed_tools", "mode": "all", "tools": []}, "tool_choice", "auto, none, required"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tools: Any, choice: Any, where: str, says: str) -> None:
    error = refused(tools, choice)
    assert error.param == where
    assert says in str(error)
