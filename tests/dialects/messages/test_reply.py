"""A buffered Messages reply: what the engine said, in blocks the official client reads."""

import json
from typing import Any

import anthropic
import pytest
from anthropic_events import read_message
from messages_calls import MESSAGE_ID, buffered, engine_reply
from odd_replies import NO_MESSAGES, SPELLED, reply_of
from scripted_engine import ScriptedEngine, Turn, json_reply
from wire_recordings import recordings

from switchyard_py.dialects.messages.reply import reply as messages_reply
from switchyard_py.dialects.messages.reply import stop_reason, usage
from switchyard_py.engines.vllm import EngineFault

REPLIES = {each.name: each.body for each in recordings() if not each.is_stream and each.status == 200}


def replied(message: object, finish: str = "stop", **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": message, "finish_reason": finish, **more}
    body = json.dumps({"id": "chatcmpl-1", "model": "m", "choices": [choice]}).encode()
    return read_message(messages_reply(body, MESSAGE_ID))


def called(arguments: object) -> Any:
    function = {"name": "f", "arguments": arguments}
    reply = replied(
        {"content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}, "tool_calls"
    )
    return reply["content"][0]["input"]


def test_a_whole_reply() -> None:
    turn = Turn(reasoning="Look.", text="I look.", tool_calls=[("f", '{"b": 1.0, "a":[ ]}'), ("g", {})])
    body = buffered(engine_reply(turn))
    assert b'"input":{"b": 1.0, "a":[ ]}' in body
    first, second = turn.calls
    assert read_message(body) == {
        "id": MESSAGE_ID,
        "type": "message",
        "role": "assistant",
        "model": "served",
        "content": [
            {"type": "thinking", "thinking": "Look.", "signature": "switchyard"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": first["id"], "name": "f", "input": {"b": 1.0, "a": []}},
            {"type": "tool_use", "id": second["id"], "name": "g", "input": {}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": len(turn.prompt_token_ids), "output_tokens": len(turn.tokens)},
    }


@pytest.mark.parametrize("name", REPLIES)
def test_recorded_replies_are_readable(name: str) -> None:
    given = json.loads(REPLIES[name])
    reply = read_message(buffered(REPLIES[name]))
    message = given["choices"][0]["message"]
    said = {block["type"]: block for block in reply["content"] if block["type"] != "tool_use"}
    assert said.get("text", {}).get("text") == (message["content"] or None)
    assert said.get("thinking", {}).get("thinking") == (message.get("reasoning") or None)
    calls = [block for block in reply["content"] if block["type"] == "tool_use"]
    assert [call["id"] for call in calls] == [call["id"] for call in message.get("tool_calls") or []]


@pytest.mark.parametrize(
    ("finish", "stopped_by", "arguments", "expected"),
    [
        ("stop", None, [], ("end_turn", None)),
        ("stop", 2039, [], ("end_turn", None)),
        ("stop", "END", [], ("stop_sequence", "END")),
        ("stop", "END", ["{}"], ("stop_sequence", "END")),
        ("stop", None, ["{}"], ("tool_use", None)),
        ("tool_calls", None, ["{}"], ("tool_use", None)),
        ("tool_calls", "END", ["{}"], ("tool_use", None)),
        ("tool_calls", "END", ['{"city": "'], ("stop_sequence", "END")),
        ("tool_calls", "END", ["{}", ""], ("stop_sequence", "END")),
        ("tool_calls", "END", ['{"city": "', "{}"], ("tool_use", None)),
        ("tool_calls", None, ['{"city": "'], ("tool_use", None)),
        ("tool_calls", 2039, ['{"city": "'], ("tool_use", None)),
        ("tool_calls", None, [], ("end_turn", None)),
        ("length", None, ["{}"], ("max_tokens", None)),
        ("abort", None, [], ("max_tokens", None)),
        ("error", None, [], ("max_tokens", None)),
        ("content_filter", None, [], ("refusal", None)),
        ("unheard_of", None, [], ("end_turn", None)),
    ],
)
def test_why_it_stopped(
    finish: str, stopped_by: object, arguments: list[str], expected: tuple[str, str | None]
) -> None:
    assert stop_reason(finish, stopped_by, [json.dumps(each).encode() for each in arguments]) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 2}, {"input_tokens": 9, "output_tokens": 2}),
        (
            {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 5}},
            {"input_tokens": 4, "cache_read_input_tokens": 5, "output_tokens": 2},
        ),
        (
            {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4, "created_cache_tokens": 3}},
            {
                "input_tokens": 2,
                "cache_creation_input_tokens": 3,
                "cache_read_input_tokens": 4,
                "output_tokens": 0,
            },
        ),
        (
            {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": None}},
            {"input_tokens": 1, "output_tokens": 0},
        ),
        (None, {"input_tokens": 0, "output_tokens": 0}),
        ([], {"input_tokens": 0, "output_tokens": 0}),
    ],
)
def test_usage(given: object, expected: dict[str, int]) -> None:
    assert json.loads(usage(json.dumps(given).encode())) == expected
    if given is None:
        assert json.loads(usage(None)) == expected


@pytest.mark.parametrize("nothing", [{}, None, {"content": None}, {"content": "", "reasoning": "", "tool_calls": []}])
def test_an_empty_reply_has_no_block(nothing: object) -> None:
    assert replied(nothing)["content"] == []


def test_thinking_under_both_names_is_told_once() -> None:
    assert len(replied({"reasoning": "hm", "reasoning_content": "hm"})["content"]) == 1
    assert replied({"reasoning_content": "hm"})["content"][0]["thinking"] == "hm"


def test_input_is_an_object_whatever_was_generated() -> None:
    assert called('{"a":\n1}') == {"a": 1}
    for none in ("", "false", "[1]", '{"a":', '{"a":NaN}', None):
        assert called(none) == {}


def test_input_with_a_lone_surrogate_stays_json() -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": '{"a":"\ud800"}'}}
    body = json.dumps({"model": "m", "choices": [{"message": {"tool_calls": [call]}, "finish_reason": "stop"}]})
    assert b'"input":{"a":"\\ud800"}' in messages_reply(body.encode(), MESSAGE_ID)


def test_text_keeps_the_engine_s_spelling() -> None:
    reply = messages_reply(SPELLED, MESSAGE_ID)
    assert b'"text":"\\u00e9\\ud800\\/"' in reply
    assert b'"model":"m\\u00e9"' in reply


@pytest.mark.parametrize("message", NO_MESSAGES)
def test_a_message_that_is_none_is_the_engine_s_fault(message: bytes) -> None:
    with pytest.raises(EngineFault, match="the engine's message cannot be read"):
        messages_reply(reply_of(message), MESSAGE_ID)


async def test_the_official_client_reads_a_reply(engine: ScriptedEngine) -> None:
    turn = Turn(reasoning="Look.", tool_calls=[("f", {"a": 1})])
    engine.reply(json_reply(buffered(engine_reply(turn))))
    async with anthropic.AsyncAnthropic(base_url=engine.url, api_key="k", max_retries=0) as client:
        message = await client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}])
    thought, call = message.content
    assert (thought.type, call.type, message.stop_reason) == ("thinking", "tool_use", "tool_use")
    assert isinstance(call, anthropic.types.ToolUseBlock)
    assert call.input == {"a": 1}
