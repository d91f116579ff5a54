"""A normal tool-using session is one that a strict trainer accepts."""

from typing import Any

import consumer
import orjson
import pytest
from event_stream import deltas, events, joined
from running_proxy import RunningProxy, StartProxy, session_path
from scripted_engine import ScriptedEngine, Turn, chat

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Tells the weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]
FIELDS = (
    *("schema_version", "uuid", "session_id", "parent_session_id", "captured_at", "request_id", "model", "messages"),
    *("tools", "tool_choice", "token_count", "prompt_token_ids", "generation_token_ids", "generation_log_probs"),
    *("finish_reason", "is_valid", "call"),
)


def _turns() -> list[Turn]:
    """What the engine generates; each prompt is all tokens before it and those of what was added."""
    said = [
        Turn(
            reasoning="I look it up", tool_calls=[("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Bonn"})]
        ),
        Turn(text="Once more.", tool_calls=[("get_weather", '{"city":  "Rome"}')]),
        Turn(text="It is sunny."),
        Turn(reasoning="thanks?", text="You are welcome."),
    ]
    prompt = list(Turn().prompt_token_ids)
    turns = []
    for number, turn in enumerate(said):
        turns.append(Turn(turn.text, turn.reasoning, turn.tool_calls, prompt_token_ids=tuple(prompt)))
        prompt = [*prompt, *turns[-1].token_ids, 3000 + number, 3001]
    return turns


async def _reply(running: RunningProxy, messages: list[Any], stream: bool) -> dict[str, Any]:
    """One call; the assistant message as an agent puts it into its history."""
    response = await running.chat({"messages": messages, "tools": TOOLS, "stream": stream}, "s")
    if not stream:
        message = response.json()["choices"][0]["message"]
        return {key: value for key, value in message.items() if value is not None}
    chunks = events(response.content)
    message = {"role": "assistant", "content": joined(chunks, "content")}
    calls: dict[int, dict[str, Any]] = {}
    for delta in deltas(chunks):
        for part in delta.get("tool_calls") or []:
            call = calls.setdefault(part["index"], {"function": {"name": "", "arguments": ""}})
            call.update({key: part[key] for key in ("id", "type") if key in part})
            for key, text in part["function"].items():
                call["function"][key] += text
    if calls:
        message["tool_calls"] = list(calls.values())
    return message | ({"reasoning": joined(chunks, "reasoning")} if joined(chunks, "reasoning") else {})


@pytest.mark.parametrize("stream", [False, True])
async def test_a_session_of_several_turns_with_tools_is_accepted(
    proxy: StartProxy, engine: ScriptedEngine, stream: bool
) -> None:
    running = await proxy()
    turns = _turns()
    engine.reply(*map(chat, turns))
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather?"}]
    for _ in turns:
        message = await _reply(running, messages, stream)
        messages.append(message)
        calls = message.get("tool_calls", [])
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": "sunny"} for call in calls]
        if not calls:
            messages.append(
                {"role": "user", "content": [{"type": "text", "text": "Thank "}, {"type": "text", "text": "you"}]}
            )
    response = await running.client.get(f"{session_path('s')}/completions")
    records = consumer.accept(response.content, "s")
    assert [record["generation_token_ids"] for record in records] == [turn.token_ids for turn in turns]
    assert [record["generation_log_probs"] for record in records] == [turn.logprobs for turn in turns]
    assert [record["call"]["streamed"] for record in records] == [stream] * len(turns)
    for record, turn in zip(records, turns, strict=True):
        assert tuple(record) == FIELDS
        assert record["tools"] == [
            {
                "id": "get_weather",
                "description": "Tells the weather",
                "inputSchema": {"jsonSchema": TOOLS[0]["function"]["parameters"]},  # type: ignore[index]
            }
        ]
        assert record["tool_choice"] == "auto"
        assert record["finish_reason"] == turn.finish
        assert record["token_count"] == {
            "prompt_tokens": len(turn.prompt_token_ids),
            "completion_tokens": len(turn.tokens),
            "total_tokens": len(turn.prompt_token_ids) + len(turn.tokens),
        }


async def test_a_stream_leaves_the_same_record_as_a_buffered_reply(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    for turn in _turns():
        engine.reply(chat(turn), chat(turn))
        await running.chat({"tools": TOOLS}, "buffered")
        await running.chat({"tools": TOOLS, "stream": True}, "streamed")
    own = {"uuid", "session_id", "captured_at", "request_id", "call"}
    sessions = [await running.records(session) for session in ("buffered", "streamed")]
    for buffered, streamed in zip(*sessions, strict=True):
        assert {key: value for key, value in buffered.items() if key not in own} == {
            key: value for key, value in streamed.items() if key not in own
        }


async def _mutated(running: RunningProxy, change: Any) -> bytes:
    envelope = await running.session("s")
    change(envelope)
    return orjson.dumps(envelope)


def _set(key: str, value: object) -> Any:
    return lambda envelope: envelope["completions"][1].__setitem__(key, value)


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("E2", lambda envelope: envelope.__setitem__("schema_version", 2)),
        ("E3", lambda envelope: envelope.__setitem__("session_id", "S")),
        ("E4", lambda envelope: envelope["completions"].clear()),
        ("R1", _set("session_id", "other")),
        ("R2", lambda envelope: envelope["completions"].append(envelope["completions"][0])),
        ("R3", _set("is_valid", 1)),
        ("R4", _set("request_id", "")),
        ("R5", _set("generation_token_ids", [True])),
        ("R6", _set("generation_log_probs", [-0.5])),
        ("R7", lambda envelope: envelope["completions"][1]["messages"].pop()),
        ("R8", _set("tools", None)),
        ("R9", _set("tool_choice", "required")),
        ("R10", lambda envelope: envelope["completions"][1]["prompt_token_ids"].insert(3, 1)),
        ("R11", lambda envelope: envelope["completions"][1]["messages"].insert(1, {"role": "user", "content": "x"})),
    ],
)
async def test_the_strict_reader_refuses_what_breaks_a_rule(
    proxy: StartProxy, engine: ScriptedEngine, rule: str, change: Any
) -> None:
    running = await proxy()
    turns = _turns()[2:]
    engine.reply(*map(chat, turns))
    messages: list[Any] = [{"role": "user", "content": "Weather?"}]
    for _ in turns:
        messages.append(await _reply(running, messages, stream=False))
        messages.append({"role": "user", "content": "Thank you"})
    consumer.accept(await _mutated(running, lambda _: None), "s")
    with pytest.raises(consumer.Refused, match=f"^{rule} "):
        consumer.accept(await _mutated(running, change), "s")
