"""A buffered response: what the engine said, in items the official client reads."""

import json
from typing import Any

import openai
import pytest
from odd_replies import NO_MESSAGES, SPELLED, reply_of
from openai_responses import read_response
from responses_calls import CALL_HEX, CALL_ID, Call
from scripted_engine import ScriptedEngine, Turn, json_reply
from wire_recordings import recordings

from switchyard_py.dialects.responses.reply import usage
from switchyard_py.engines.vllm import EngineFault

REPLIES = {each.name: each.body for each in recordings() if not each.is_stream and each.status == 200}
ENCRYPTED: dict[str, Any] = {"include": ["reasoning.encrypted_content"]}


def replied(message: object, finish: str = "stop", **asked: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": message, "finish_reason": finish}
    body = json.dumps({"id": "chatcmpl-1", "model": "m", "choices": [choice]}).encode()
    return read_response(Call(**asked).inquiry.reply(body, CALL_ID))


def test_a_whole_reply() -> None:
    turn = Turn(reasoning="Look.", text="I look.", tool_calls=[("f", '{"b": 1.0, "a":[ ]}'), ("g", {})])
    asked = Call(**ENCRYPTED)
    first, second = turn.calls
    text = {"type": "output_text", "text": "I look.", "annotations": [], "logprobs": []}
    called = {"type": "function_call", "status": "completed"}
    assert read_response(asked.buffered(asked.engine_reply(turn))) == {
        "id": f"resp_{CALL_HEX}",
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "temperature": None,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "truncation": "disabled",
        "model": "served",
        "output": [
            {
                "type": "reasoning",
                "id": f"rs_{CALL_HEX}_0",
                "status": "completed",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": "Look."}],
                "encrypted_content": "switchyard:TG9vay4=",
            },
            {
                "type": "message",
                "id": f"msg_{CALL_HEX}_1",
                "status": "completed",
                "role": "assistant",
                "content": [text],
            },
            called
            | {"id": f"fc_{CALL_HEX}_2", "call_id": first["id"], "name": "f", "arguments": '{"b": 1.0, "a":[ ]}'},
            called | {"id": f"fc_{CALL_HEX}_3", "call_id": second["id"], "name": "g", "arguments": "{}"},
        ],
        "usage": {
            "input_tokens": len(turn.prompt_token_ids),
            "input_tokens_details": {"cache_write_tokens": 0, "cached_tokens": 0},
            "output_tokens": len(turn.tokens),
            "output_tokens_details": {"reasoning_tokens": turn.reasoning_tokens},
            "total_tokens": len(turn.prompt_token_ids) + len(turn.tokens),
        },
    }


def test_settings_of_the_request_are_repeated() -> None:
    function = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": False}
    settings: dict[str, Any] = {
        "instructions": "be brief",
        "max_output_tokens": 9,
        "metadata": {"a": "b"},
        "parallel_tool_calls": False,
        "prompt_cache_key": "k",
        "reasoning": {"effort": "low", "summary": "auto"},
        "safety_identifier": "s",
        "service_tier": "auto",
        "temperature": 0.5,
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}, "verbosity": "low"},
        "tool_choice": {"type": "function", "name": "f"},
        "tools": [function, {"type": "namespace", "name": "n", "description": "d", "tools": [function]}],
        "top_p": 0.9,
        "truncation": "auto",
        "user": "u",
    }
    response = replied({"content": "hi"}, **settings, store=True, include=[], client_metadata={"x": "y"})
    assert {key: response[key] for key in settings} == settings
    assert response.keys().isdisjoint(("input", "store", "include", "client_metadata"))


def test_encrypted_content_is_only_given_where_it_was_asked_for() -> None:
    included: tuple[Any, ...] = (None, [], ["web_search_call.results"])
    for include in included:
        assert "encrypted_content" not in replied({"reasoning": "hm"}, include=include)["output"][0]
    assert "encrypted_content" in replied({"reasoning": "hm"}, **ENCRYPTED)["output"][0]


@pytest.mark.parametrize("name", REPLIES)
def test_recorded_replies_are_readable(name: str) -> None:
    given = json.loads(REPLIES[name])
    response = read_response(Call().buffered(REPLIES[name]))
    message = given["choices"][0]["message"]
    said = {item["type"]: item["content"][0]["text"] for item in response["output"] if "content" in item}
    calls = [item for item in response["output"] if item["type"] == "function_call"]
    nothing = not (message["content"] or message.get("reasoning") or calls)
    assert said.get("message") == ("" if nothing else message["content"] or None)
    assert said.get("reasoning") == (message.get("reasoning") or None)
    assert [call["call_id"] for call in calls] == [call["id"] for call in message.get("tool_calls") or []]


@pytest.mark.parametrize(
    ("finish", "status", "why"),
    [
        ("stop", "completed", None),
        ("tool_calls", "completed", None),
        ("unheard_of", "completed", None),
        ("length", "incomplete", "max_output_tokens"),
        ("abort", "incomplete", "max_output_tokens"),
        ("error", "incomplete", "max_output_tokens"),
        ("content_filter", "incomplete", "content_filter"),
    ],
)
def test_how_it_ended(finish: str, status: str, why: str | None) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}}
    response = replied({"content": "I look.", "tool_calls": [call]}, finish)
    assert response["status"] == status
    assert response["incomplete_details"] == (why and {"reason": why})
    assert [item["status"] for item in response["output"]] == ["completed", status]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 2}, (9, 0, 0, 2, 0, 11)),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 4,
                "prompt_tokens_details": {"cached_tokens": 5, "created_cache_tokens": 3},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
            (9, 3, 5, 4, 2, 13),
        ),
        ({"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": None}}, (1, 0, 0, 0, 0, 1)),
    ],
)
def test_usage(given: object, expected: tuple[int, ...]) -> None:
    prompt, written, cached, completion, reasoning, total = expected
    assert json.loads(usage(json.dumps(given).encode())) == {
        "input_tokens": prompt,
        "input_tokens_details": {"cache_write_tokens": written, "cached_tokens": cached},
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": total,
    }


@pytest.mark.parametrize("given", [None, b"null", b"[]", b"{}"])
def test_usage_that_is_not_known(given: bytes | None) -> None:
    assert usage(given) == b"null"


@pytest.mark.parametrize("nothing", [{}, None, {"content": None}, {"content": "", "reasoning": "", "tool_calls": []}])
def test_an_empty_reply_is_an_empty_message(nothing: object) -> None:
    (item,) = replied(nothing)["output"]
    assert (item["type"], item["content"][0]["text"]) == ("message", "")


def test_a_refusal_is_told_as_one() -> None:
    (item,) = replied({"content": None, "refusal": "I will not."})["output"]
    assert item["content"] == [{"type": "refusal", "refusal": "I will not."}]


def test_reasoning_under_both_names_is_told_once() -> None:
    for message in ({"reasoning": "hm", "reasoning_content": "hm"}, {"reasoning_content": "hm"}):
        (item,) = replied(message)["output"]
        assert item["content"] == [{"type": "reasoning_text", "text": "hm"}]


def test_text_keeps_the_engine_s_spelling() -> None:
    reply = Call().inquiry.reply(SPELLED, CALL_ID)
    assert b'"text":"\\u00e9\\ud800\\/"' in reply
    assert b'"model":"m\\u00e9"' in reply


@pytest.mark.parametrize("message", NO_MESSAGES)
def test_a_message_that_is_none_is_the_engine_s_fault(message: bytes) -> None:
    with pytest.raises(EngineFault, match="the engine's message cannot be read"):
        Call().inquiry.reply(reply_of(message), CALL_ID)


async def test_the_official_client_reads_a_reply(engine: ScriptedEngine) -> None:
    turn = Turn(reasoning="Look.", text="I look.", tool_calls=[("f", {"a": 1})])
    asked = Call()
    engine.reply(json_reply(asked.buffered(asked.engine_reply(turn))))
    async with openai.AsyncOpenAI(base_url=engine.base_url, api_key="k", max_retries=0) as client:
        response = await client.responses.create(model="m", input="hi")
    reasoning, _, call = response.output
    assert (reasoning.type, response.output_text) == ("reasoning", "I look.")
    assert call.type == "function_call"
    assert call.arguments == '{"a": 1}'
