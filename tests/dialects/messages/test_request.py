"""A Messages request becomes the chat request that says the same, in the agent's own spelling."""

import json
from typing import Any

import pytest
from messages_calls import HELLO, prepared, translated

from switchyard_py.dialects.dialect import asked_model
from switchyard_py.dialects.messages import Messages
from switchyard_py.dialects.messages.request import to_chat
from switchyard_py.errors import RequestRefused
from switchyard_py.rawjson import join_object

CALL: dict[str, Any] = {"model": "m", "max_tokens": 100, "messages": HELLO}
FUNCTION = {"name": "f", "parameters": {"type": "object"}}
TOOL = {"name": "f", "input_schema": {"type": "object"}}


def refused(**fields: Any) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        translated(CALL | fields)
    assert (caught.value.status, caught.value.code) == (400, "invalid_parameter")
    assert caught.value.param is not None
    assert str(caught.value).startswith(caught.value.param)
    return caught.value


def test_the_smallest_request() -> None:
    assert translated(CALL) == CALL


def test_what_both_dialects_have_is_sent_byte_for_byte() -> None:
    body = b'{"temperature":1.0e0,"max_tokens": 100,"top_p":0.50,"top_k":40,"model":"m\\u00e9","messages":[]}'
    fields = to_chat(Messages().read(body.replace(b"[]", b'[{"role":"user","content":"\\/"}]')), {})
    assert join_object(fields) == (
        b'{"temperature":1.0e0,"max_tokens":100,"top_p":0.50,"top_k":40,"model":"m\\u00e9",'
        b'"messages":[{"role":"user","content":"\\/"}]}'
    )


def test_fields_of_the_engine_and_the_session_reach_it() -> None:
    more = {"proxy_x_session_id": "s", "seed": 7, "min_p": 0.1, "chat_template_kwargs": {"a": 1}, "unheard_of": [1]}
    assert translated(CALL | more) == CALL | more


def test_what_only_anthropic_knows_is_dropped() -> None:
    only = {
        "metadata": {"user_id": "u"},
        "service_tier": "auto",
        "context_management": {"edits": []},
        "container": "c",
        "mcp_servers": [],
        "cache_control": {"type": "ephemeral"},
        "betas": ["b"],
        "thinking": {"type": "adaptive", "display": "omitted"},
        "stream_options": {"include_usage": False},
    }
    assert translated(CALL | only) == CALL


def test_null_is_nothing() -> None:
    fields = ("system", "tools", "tool_choice", "stop_sequences", "thinking", "output_config", "temperature", "seed")
    assert translated(CALL | dict.fromkeys(fields)) == CALL


def test_stop_sequences() -> None:
    assert translated(CALL | {"stop_sequences": ["END", "é"]}) == CALL | {"stop": ["END", "é"]}


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"thinking": {"type": "disabled"}}, {"reasoning_effort": "none"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, {}),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}, {"reasoning_effort": "high"}),
        ({"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}}, {"reasoning_effort": "none"}),
        ({"output_config": {"effort": None}}, {}),
    ],
)
def test_thinking(given: dict[str, Any], sent: dict[str, Any]) -> None:
    assert translated(CALL | given) == CALL | sent


@pytest.mark.parametrize("name", ["output_config", "output_format"])
def test_the_form_of_the_answer(name: str) -> None:
    form = {"type": "json_schema", "schema": {"type": "object", "properties": {"b": {}, "a": {}}}}
    sent = translated(CALL | {name: {"format": form} if name == "output_config" else form})
    assert sent["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "json_schema", "schema": form["schema"]},
    }
    assert prepared(stream=False, output_config={"format": form}).asked.constrained


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        ({"type": "none"}, {"tool_choice": "none"}),
        ({"type": "tool", "name": "f"}, {"tool_choice": {"type": "function", "function": {"name": "f"}}}),
        ({"type": "auto", "disable_parallel_tool_use": True}, {"tool_choice": "auto", "parallel_tool_calls": False}),
        ({"type": "any", "disable_parallel_tool_use": False}, {"tool_choice": "required"}),
    ],
)
def test_tool_choice(choice: dict[str, Any], sent: dict[str, Any]) -> None:
    tools = {"tools": [{"type": "function", "function": FUNCTION}]}
    assert translated(CALL | {"tools": [TOOL], "tool_choice": choice}) == CALL | tools | sent


def test_without_tools_there_is_nothing_to_choose() -> None:
    # vLLM answers 400 to both an empty list and a choice without tools.
    for choice in ({"type": "auto"}, {"type": "none"}):
        assert translated(CALL | {"tools": [], "tool_choice": choice}) == CALL
    assert translated(CALL | {"tool_choice": {"type": "any"}}) == CALL | {"tool_choice": "required"}


def test_tools_keep_their_own_spelling() -> None:
    schema = b'{"type": "object","properties":{"b":{"maximum":1.0},"a":{}}}'
    body = (
        b'{"model":"m","messages":[{"role":"user","content":"hi"}],"tools":[{"cache_control":{"type":"ephemeral"},'
        b'"description":"\\u00e9","input_schema":%b,"name":"f","type":"custom","strict":true,"defer_loading":true,'
        b'"input_examples":[{}],"description":"last"},{"name":"g","type":null,"input_schema":{}}]}' % schema
    )
    sent = to_chat(Messages().read(body), {})["tools"]
    assert bytes(sent) == (
        b'[{"type":"function","function":{"name":"f","description":"last","parameters":%b,"strict":true}},'
        b'{"type":"function","function":{"name":"g","parameters":{}}}]' % schema
    )


def names(sent: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in sent.get("tools", [])]


def changed(*blocks: tuple[str, Any], tools: Any = (TOOL, TOOL | {"name": "g"})) -> dict[str, Any]:
    turn = {"role": "system", "content": [{"type": kind, "tool": tool} for kind, tool in blocks]}
    sent = translated(CALL | {"tools": list(tools), "messages": [*HELLO, turn]})
    assert sent["messages"] == HELLO
    return sent


def test_turns_that_change_the_tools() -> None:
    reference, other = {"type": "tool_reference", "name": "f"}, {"type": "tool_reference", "name": "g"}
    definition = {"type": "tool_definition", "definition": TOOL | {"name": "h", "description": "new"}}
    assert names(changed(("tool_removal", reference))) == ["g"]
    assert names(changed(("tool_removal", reference), ("tool_addition", reference))) == ["f", "g"]
    assert names(changed(("tool_addition", definition))) == ["f", "g", "h"]
    assert names(changed(("tool_addition", definition), tools=())) == ["h"]
    assert names(changed(("tool_removal", reference), ("tool_removal", other))) == []
    again = changed(("tool_addition", {"type": "tool_definition", "definition": TOOL | {"description": "new"}}))
    assert again["tools"][-1]["function"] == FUNCTION | {"description": "new"}
    assert names(again) == ["g", "f"]


def test_words_that_only_look_like_a_change_of_tools() -> None:
    text = {"role": "user", "content": "tool_removal"}
    sent = translated(CALL | {"tools": [TOOL], "messages": [text, {"role": "system", "content": "tool_addition"}]})
    assert names(sent) == ["f"]


@pytest.mark.parametrize(
    ("fields", "where", "says"),
    [
        ({"messages": None}, "messages", "must be an array"),
        ({"messages": "hi"}, "messages", "must be an array"),
        ({"messages": ["hi"]}, "messages[0]", "must be an object"),
        ({"messages": [{"role": "robot", "content": ""}]}, "messages[0].role", "user, assistant or system"),
        ({"messages": [{"role": ["user"], "content": ""}]}, "messages[0].role", "user, assistant or system"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "a string or an array"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "must be an array"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]", "must be an object"),
        ({"messages": [{"role": "user", "content": [{}]}]}, "messages[0].content[0].type", "must be a string"),
        ({"system": 5}, "system", "must be an array"),
        ({"system": [{"type": "text"}]}, "system[0].text", "must be a string"),
        ({"tools": {}}, "tools", "must be an array"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema", "must be an object"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name", "must be a string"),
        ({"tools": [TOOL, {"type": "web_search_20250305", "name": "web_search"}]}, "tools[1]", "web_search_20250305"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0]", "which the engine has not"),
        ({"tool_choice": "auto"}, "tool_choice", "must be an object"),
        ({"tool_choice": {"type": "one"}}, "tool_choice.type", "auto, any, tool or none"),
        ({"tool_choice": {"type": ["any"]}}, "tool_choice.type", "auto, any, tool or none"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name", "must be a string"),
        ({"thinking": True}, "thinking", "must be an object"),
        ({"output_config": []}, "output_config", "must be an object"),
        ({"output_config": {"format": {}}}, "output_config.format.type", "must be a string"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(fields: dict[str, Any], where: str, says: str) -> None:
    error = refused(**fields)
    assert error.param == where
    assert says in str(error)


def test_the_body_is_read_as_any_other() -> None:
    with pytest.raises(RequestRefused, match="non-empty"):
        Messages().read(b'{"messages":[]}')
    assert asked_model(Messages().read(json.dumps(CALL).encode())) == "m"
