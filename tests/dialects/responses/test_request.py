"""A Responses request becomes the chat request that says the same, in the agent's own spelling."""

import json
from typing import Any

import pytest
from responses_calls import HELLO, Call, translated

from switchyard_py.dialects.dialect import asked_model
from switchyard_py.dialects.responses import Responses
from switchyard_py.errors import RequestRefused
from switchyard_py.rawjson import join_object

ASKED: dict[str, Any] = {"model": "m", "input": "hi"}
SENT: dict[str, Any] = {"model": "m", "messages": HELLO}


def refused(**fields: Any) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        translated(ASKED | fields)
    assert (caught.value.status, caught.value.code) == (400, "invalid_parameter")
    assert caught.value.param is not None
    assert str(caught.value).startswith(caught.value.param)
    return caught.value


def test_the_smallest_request() -> None:
    assert translated(ASKED) == SENT


def test_what_both_dialects_have_is_sent_byte_for_byte() -> None:
    body = b'{"temperature":1.0e0,"max_output_tokens": 100,"top_p":0.50,"top_k":40,"model":"m\\u00e9","input":"\\/"}'
    inquiry = Responses().inquire(Responses().read(body), {})
    assert join_object(inquiry.fields) == (
        b'{"temperature":1.0e0,"top_p":0.50,"top_k":40,"model":"m\\u00e9",'
        b'"messages":[{"role":"user","content":"\\/"}],"max_tokens":100}'
    )


def test_fields_of_the_engine_and_the_session_reach_it() -> None:
    more = {"proxy_x_session_id": "s", "seed": 7, "stop": ["END"], "chat_template_kwargs": {"a": 1}, "unheard_of": [1]}
    assert translated(ASKED | more) == SENT | more


def test_what_only_openai_knows_is_dropped() -> None:
    only = {
        "background": False,
        "client_metadata": {"turn_id": "t"},
        "context_management": [],
        "include": ["reasoning.encrypted_content"],
        "max_tool_calls": 3,
        "metadata": {"a": "b"},
        "prompt_cache_key": "k",
        "prompt_cache_retention": "24h",
        "safety_identifier": "s",
        "service_tier": "auto",
        "store": True,
        "stream_options": {"include_obfuscation": False},
        "top_logprobs": 3,
        "truncation": "auto",
    }
    assert translated(ASKED | only) == SENT


def test_null_is_nothing() -> None:
    fields = ("instructions", "tools", "tool_choice", "reasoning", "text", "include", "previous_response_id")
    more = ("conversation", "prompt", "background", "temperature", "max_output_tokens", "parallel_tool_calls")
    assert translated(ASKED | dict.fromkeys((*fields, *more))) == SENT


def test_parallel_tool_calls_stay() -> None:
    assert translated(ASKED | {"parallel_tool_calls": False}) == SENT | {"parallel_tool_calls": False}


@pytest.mark.parametrize(
    ("reasoning", "sent"),
    [
        ({"effort": "high", "summary": "auto"}, {"reasoning_effort": "high"}),
        ({"effort": "none"}, {"reasoning_effort": "none"}),
        ({"summary": "auto"}, {}),
        ({"effort": None}, {}),
    ],
)
def test_reasoning(reasoning: dict[str, Any], sent: dict[str, Any]) -> None:
    assert translated(ASKED | {"reasoning": reasoning}) == SENT | sent


def test_the_form_of_the_answer() -> None:
    schema = {"name": "n", "description": "d", "schema": {"properties": {"b": {}, "a": {}}}, "strict": True}
    text = {"format": {"type": "json_schema", **schema}, "verbosity": "low"}
    form = {"response_format": {"type": "json_schema", "json_schema": schema}}
    assert translated(ASKED | {"text": text}) == SENT | form
    assert Call(text=text).prepared.asked.constrained
    plain = {"response_format": {"type": "json_object"}}
    assert translated(ASKED | {"text": {"format": {"type": "json_object"}}}) == SENT | plain
    for nothing in ({}, {"format": None}, {"format": {"type": "text"}}, {"verbosity": "high"}):
        assert translated(ASKED | {"text": nothing}) == SENT


@pytest.mark.parametrize(
    ("fields", "where", "says"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id", "Send the whole conversation"),
        ({"conversation": "conv_1"}, "conversation", "Send the whole conversation"),
        ({"conversation": {"id": "conv_1"}}, "conversation", "stores no conversations"),
        ({"prompt": {"id": "p"}}, "prompt", "stores no prompts"),
        ({"background": True}, "background", "Wait for the answer or stream it"),
        ({"include": ["message.output_text.logprobs"]}, "include", "read log-probs from the session"),
        ({"include": "all"}, "include", "must be an array"),
        ({"input": None}, "input", "a string or an array"),
        ({"input": 5}, "input", "must be an array"),
        ({"input": {"role": "user"}}, "input", "must be an array"),
        ({"input": ["hi"]}, "input[0]", "must be an object"),
        ({"input": [{"role": "robot", "content": ""}]}, "input[0].role", "user, assistant, system or developer"),
        ({"input": [{"content": ""}]}, "input[0].role", "user, assistant, system or developer"),
        ({"input": [{"role": "user"}]}, "input[0].content", "a string or an array of content parts"),
        ({"input": [{"role": "user", "content": 5}]}, "input[0].content", "must be an array"),
        ({"input": [{"role": "user", "content": ["x"]}]}, "input[0].content[0]", "must be an object"),
        ({"input": [{"role": "user", "content": [{}]}]}, "input[0].content[0].type", "must be a string"),
        ({"instructions": 5}, "instructions", "must be an array"),
        ({"instructions": [{"type": "input_text"}]}, "instructions[0].text", "must be a string"),
        ({"reasoning": "high"}, "reasoning", "must be an object"),
        ({"text": "json"}, "text", "must be an object"),
        ({"text": {"format": "json"}}, "text.format", "must be an object"),
        ({"text": {"format": {"name": "n"}}}, "text.format.type", "must be a string"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(fields: dict[str, Any], where: str, says: str) -> None:
    error = refused(**fields)
    assert error.param == where
    assert says in str(error)


def test_the_body_is_read_as_any_other() -> None:
    with pytest.raises(RequestRefused, match="non-empty") as caught:
        Responses().read(b'{"input":[ ]}')
    assert (caught.value.code, caught.value.param) == ("empty_messages", "input")
    with pytest.raises(RequestRefused, match="must be a JSON object"):
        Responses().read(b"[]")
    assert asked_model(Responses().read(json.dumps(ASKED).encode())) == "m"
