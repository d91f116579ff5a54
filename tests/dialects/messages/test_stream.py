"""A Messages stream: every event is one the official client reads, in an order it expects, and nothing leaves early."""

import json
from pathlib import Path

import anthropic
import pytest
from anthropic_events import Event, assembled, read_events, read_message
from messages_calls import MESSAGE_ID, buffered, engine_reply, engine_stream, prepared, streamed
from scripted_engine import ScriptedEngine, Turn, sse_reply
from wire_recordings import recordings

from switchyard_py.dialects.messages.errors import error_event
from switchyard_py.dialects.messages.stream import MessagesStream
from switchyard_py.engines.vllm import Chunk, EngineFault, Part
from switchyard_py.errors import Kind, SwitchyardError
from switchyard_py.rawjson import split_object

GOLDEN = Path(__file__).parent / "golden"
WEATHER = ("get_weather", '{"city": "Zürich", "days": 1.0}')
TURNS = {
    "text": Turn(text="Grüezi \U0001f600"),
    "reasoning": Turn(reasoning="Say it.", text="Hello"),
    "one_tool": Turn(reasoning="Look.", tool_calls=[WEATHER]),
    "two_tools": Turn(tool_calls=[WEATHER, ("now", {})]),
    "tool_and_text": Turn(text="I look.", tool_calls=[("now", {})]),
    "length": Turn(text="cut he", finish_reason="length"),
    "length_in_a_call": Turn(tool_calls=[("now", '{"a": ')], finish_reason="length"),
    "stop_sequence": Turn(text="before", stop_reason="END"),
    "refusal": Turn(text="no", finish_reason="content_filter"),
    "nothing": Turn(),
}
# What vLLM streams although its buffered reply has the text of the call instead.
ONLY_STREAMED = (
    "length_in_a_call",
    "tool_malformed_auto",
    "tool_required_nothink",
    "tool_required_reasoning",
    "tool_truncated_auto",
)
RECORDED = {each.name: each for each in recordings() if each.status == 200}
STREAMS = [name for name, each in RECORDED.items() if each.is_stream and "engine_death" not in name]


@pytest.mark.parametrize("name", TURNS)
def test_a_stream_is_the_golden_one(name: str) -> None:
    live, tail = streamed([engine_stream(TURNS[name])])
    events = read_events(live + tail)
    assembled(events)
    assert (live + b": the record is durable\n\n" + tail).decode() == (GOLDEN / f"{name}.sse").read_text()


@pytest.mark.parametrize("name", TURNS)
def test_a_stream_that_arrives_byte_by_byte_is_the_same(name: str) -> None:
    whole = engine_stream(TURNS[name])
    assert streamed(whole[at : at + 1] for at in range(len(whole))) == streamed([whole])


def test_a_stream_cut_in_two_anywhere_is_the_same() -> None:
    whole = engine_stream(Turn(reasoning="é", tool_calls=[("now", "{}")]))
    expected = streamed([whole])
    for at in range(1, len(whole)):
        assert streamed([whole[:at], whole[at:]]) == expected


@pytest.mark.parametrize("name", [name for name in TURNS if name not in ONLY_STREAMED])
def test_a_stream_spells_the_buffered_reply(name: str) -> None:
    live, tail = streamed([engine_stream(TURNS[name])])
    assert assembled(read_events(live + tail)) == read_message(buffered(engine_reply(TURNS[name])))


@pytest.mark.parametrize("name", STREAMS)
def test_recorded_streams_spell_the_recorded_replies(name: str) -> None:
    live, tail = streamed([RECORDED[name].body])
    from_stream = assembled(read_events(live + tail))
    buffered_name = name.removesuffix("_stream")
    if buffered_name == name or buffered_name in ONLY_STREAMED or buffered_name not in RECORDED:
        return
    from_reply = read_message(buffered(RECORDED[buffered_name].body))
    assert _content(from_stream) == _content(from_reply)
    assert from_stream["stop_reason"] == from_reply["stop_reason"]
    assert from_stream["stop_sequence"] == from_reply["stop_sequence"]


def _content(message: Event) -> list[Event]:
    return [{key: value for key, value in block.items() if key != "id"} for block in message["content"]]


@pytest.mark.parametrize("name", TURNS)
def test_nothing_to_act_on_leaves_before_the_tail(name: str) -> None:
    turn = TURNS[name]
    live, tail = streamed([engine_stream(turn)])
    events = read_events(live)
    calls = [event["index"] for event in events if event.get("content_block", {}).get("type") == "tool_use"]
    assert calls == calls[:1]
    for event in events:
        assert event["type"] not in ("message_delta", "message_stop")
        assert event["type"] != "content_block_stop" or event["index"] not in calls
    if turn.tool_calls and turn.finish != "length":
        fragments = [event["delta"] for event in events if event["type"] == "content_block_delta"]
        told = "".join(fragment.get("partial_json", "") for fragment in fragments)
        assert told == turn.calls[0]["function"]["arguments"]
    assert b"content_block_stop" in tail or not turn.message["content"]


def test_the_size_of_the_prompt_is_told_at_the_start() -> None:
    turn = TURNS["text"]
    live, tail = streamed([engine_stream(turn)])
    start, *_, delta, _ = read_events(live + tail)
    assert start["message"]["usage"] == {"input_tokens": len(turn.prompt_token_ids), "output_tokens": 0}
    assert delta["usage"] == {"input_tokens": len(turn.prompt_token_ids), "output_tokens": len(turn.tokens)}


def test_without_counts_of_the_engine_the_usage_is_zero() -> None:
    stream = RECORDED["chat_stream"].body
    live, tail = streamed([stream])
    start, *_, delta, _ = read_events(live + tail)
    assert start["message"]["usage"] == delta["usage"] == {"input_tokens": 0, "output_tokens": 0}


def chunk(*deltas: bytes, finish: bytes = b"null", index: int = 0) -> Chunk:
    fields = split_object(b'{"index":%d,"delta":{},"finish_reason":%b}' % (index, finish))
    parts = [Part(index, fields, split_object(delta), None, finished=finish != b"null") for delta in deltas]
    return Chunk(split_object(b'{"id":"c","model":"m","choices":[]}'), parts)


def call(index: int, arguments: str, name: str | None = None) -> bytes:
    head = {"id": f"call_{index}", "type": "function"} if name else {}
    function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
    return json.dumps({"tool_calls": [{"index": index, **head, "function": function}]}).encode()


def message_of(*chunks: Chunk) -> Event:
    stream = MessagesStream(MESSAGE_ID)
    live = b"".join(map(stream.live, chunks))
    return assembled(read_events(live + stream.tail()))


def test_calls_that_are_written_in_turns_are_put_in_order() -> None:
    message = message_of(
        chunk(call(0, '{"a":', "first")),
        chunk(call(1, '{"b":', "second")),
        chunk(call(0, "1}")),
        chunk(b'{"content":"and "}'),
        chunk(call(1, "2}")),
        chunk(b'{"content":"so"}', finish=b'"tool_calls"'),
    )
    first, second, *text = message["content"]
    assert (first["name"], first["input"]) == ("first", {"a": 1})
    assert (second["name"], second["input"]) == ("second", {"b": 2})
    assert [block["text"] for block in text] == ["and so"]
    assert message["stop_reason"] == "tool_use"


def test_a_call_that_a_stop_string_cut_is_not_told_as_one_to_run() -> None:
    cut = Turn(tool_calls=[("now", '{"zone": "')], finish_reason="tool_calls", stop_reason="END")
    live, tail = streamed([engine_stream(cut)])
    *_, delta, _ = read_events(live + tail)
    assert delta["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "END"}


def test_thinking_between_text_gets_blocks_of_its_own() -> None:
    message = message_of(
        chunk(b'{"reasoning":"one"}'),
        chunk(b'{"content":"two"}'),
        chunk(b'{"reasoning":"three","content":"four"}'),
        chunk(b"{}", finish=b'"stop"'),
    )
    said = [block.get("text", block.get("thinking")) for block in message["content"]]
    assert said == ["one", "two", "three", "four"]


def test_thinking_under_both_names_is_told_once() -> None:
    both = chunk(b'{"reasoning":"once","reasoning_content":"once"}')
    older = chunk(b'{"reasoning_content":" more"}')
    (block,) = message_of(both, older, chunk(b"{}", finish=b'"stop"'))["content"]
    assert block == {"type": "thinking", "thinking": "once more", "signature": "switchyard"}


def test_other_choices_are_not_told() -> None:
    message = message_of(
        chunk(b'{"content":"mine"}'),
        chunk(b'{"content":"other"}', index=1),
        chunk(b"{}", finish=b'"length"', index=1),
        chunk(b"{}", finish=b'"stop"'),
    )
    assert [block["text"] for block in message["content"]] == ["mine"]
    assert message["stop_reason"] == "end_turn"


def test_text_keeps_the_engine_s_spelling() -> None:
    stream = MessagesStream(MESSAGE_ID)
    assert b'"text":"\\u00e9\\ud800\\/"}' in stream.live(chunk(b'{"content":"\\u00e9\\ud800\\/"}'))


@pytest.mark.parametrize(
    "calls", [b"5", b"[5]", b'[{"function":5}]', b'[{"function":{"arguments":{}}}]', b'[{"id":7}]', b'[{"name":[]}]']
)
def test_a_delta_that_is_none_is_the_engine_s_fault(calls: bytes) -> None:
    stream = MessagesStream(MESSAGE_ID)
    with pytest.raises(EngineFault, match="a delta of the engine's stream cannot be read"):
        stream.live(chunk(b'{"tool_calls":%b}' % calls))


@pytest.mark.parametrize("key", ["content", "reasoning", "reasoning_content", "refusal"])
def test_text_that_is_none_is_the_engine_s_fault(key: str) -> None:
    for value in (b"5", b"[]", b'[{"type":"text","text":"x"}]', b"true"):
        with pytest.raises(EngineFault, match=f"{key} is no text"):
            MessagesStream(MESSAGE_ID).live(chunk(b'{"%b":%b}' % (key.encode(), value)))


def test_a_call_whose_id_is_null_has_an_empty_one() -> None:
    live = MessagesStream(MESSAGE_ID).live(
        chunk(b'{"tool_calls":[{"index":0,"id":null,"function":{"name":"f","arguments":null}}]}')
    )
    *_, began = read_events(live)
    assert (began["content_block"]["id"], began["content_block"]["name"]) == ("", "f")


def test_an_error_in_the_middle_ends_the_stream() -> None:
    whole = engine_stream(TURNS["text"])
    stream = MessagesStream(MESSAGE_ID)
    live = stream.live(chunk(b'{"content":"Gr"}'))
    end = error_event(SwitchyardError(Kind.UPSTREAM_ERROR, "the engine's stream ended early"), "req-1")
    *_, error = read_events(live + end)
    assert error["type"] == "error"
    assert error["error"] == {"type": "api_error", "message": "the engine's stream ended early"}
    with pytest.raises(EngineFault, match="ended early"):
        streamed([whole.removesuffix(b"data: [DONE]\n\n")])


@pytest.mark.parametrize("name", ["one_tool", "two_tools", "tool_and_text", "stop_sequence"])
async def test_the_official_client_reads_a_stream(name: str, engine: ScriptedEngine) -> None:
    live, tail = streamed([engine_stream(TURNS[name])])
    engine.reply(sse_reply([live, tail], done=False))
    async with (
        anthropic.AsyncAnthropic(base_url=engine.url, api_key="k", max_retries=0) as client,
        client.messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]) as stream,
    ):
        message = await stream.get_final_message()
    expected = assembled(read_events(live + tail))
    assert message.to_dict(exclude_none=True).items() >= {"id": MESSAGE_ID, "content": expected["content"]}.items()
    assert (message.stop_reason, message.stop_sequence) == (expected["stop_reason"], expected["stop_sequence"])
    assert message.usage.output_tokens == len(TURNS[name].tokens)


def test_a_stream_is_asked_for_with_counts() -> None:
    asked = json.loads(prepared(stream=True).body)
    assert asked["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert "stream_options" not in json.loads(prepared(stream=False).body)
