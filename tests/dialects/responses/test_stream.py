"""A Responses stream: every event is one the official client reads, in the order it expects; nothing leaves early."""

import json
from pathlib import Path

import openai
import pytest
from openai_responses import Event, assembled, read_events, read_response
from responses_calls import CALL_HEX, CALL_ID, Call, inquired
from scripted_engine import ScriptedEngine, Turn, sse_reply
from wire_recordings import recordings

from switchyard_py.dialects.responses.stream import ResponsesStream
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
ASKED = Call(stream=True, include=["reasoning.encrypted_content"])


@pytest.mark.parametrize("name", TURNS)
def test_a_stream_is_the_golden_one(name: str) -> None:
    live, tail = ASKED.streamed([ASKED.engine_stream(TURNS[name])])
    assembled(read_events(live + tail))
    assert (live + b": the record is durable\n\n" + tail).decode() == (GOLDEN / f"{name}.sse").read_text()


@pytest.mark.parametrize("name", TURNS)
def test_a_stream_that_arrives_byte_by_byte_is_the_same(name: str) -> None:
    whole = ASKED.engine_stream(TURNS[name])
    assert ASKED.streamed(whole[at : at + 1] for at in range(len(whole))) == ASKED.streamed([whole])


def test_a_stream_cut_in_two_is_the_same() -> None:
    whole = ASKED.engine_stream(Turn(reasoning="é", tool_calls=[("now", "{}")]))
    expected = ASKED.streamed([whole])
    for at in range(1, len(whole), 5):
        assert ASKED.streamed([whole[:at], whole[at:]]) == expected


@pytest.mark.parametrize("name", [name for name in TURNS if name not in ONLY_STREAMED])
def test_a_stream_spells_the_buffered_reply(name: str) -> None:
    live, tail = ASKED.streamed([ASKED.engine_stream(TURNS[name])])
    buffered = Call(include=["reasoning.encrypted_content"])
    reply = read_response(buffered.buffered(buffered.engine_reply(TURNS[name])))
    assert assembled(read_events(live + tail)) == reply


@pytest.mark.parametrize("name", STREAMS)
def test_recorded_streams_spell_the_recorded_replies(name: str) -> None:
    live, tail = ASKED.streamed([RECORDED[name].body])
    from_stream = assembled(read_events(live + tail))
    buffered_name = name.removesuffix("_stream")
    if buffered_name == name or buffered_name in ONLY_STREAMED or buffered_name not in RECORDED:
        return
    from_reply = read_response(ASKED.buffered(RECORDED[buffered_name].body))
    assert _output(from_stream) == _output(from_reply)
    assert from_stream["status"] == from_reply["status"]


def _output(response: Event) -> list[Event]:
    # Ids of calls are random, and vLLM spaces the arguments of a call it forces otherwise in a stream.
    return [
        {
            key: value.replace(" ", "") if key == "arguments" else value
            for key, value in item.items()
            if key != "call_id"
        }
        for item in response["output"]
    ]


@pytest.mark.parametrize("name", TURNS)
def test_nothing_to_act_on_leaves_before_the_tail(name: str) -> None:
    turn = TURNS[name]
    live, tail = ASKED.streamed([ASKED.engine_stream(turn)])
    events = read_events(live)
    kinds = [event["type"] for event in events]
    assert "response.function_call_arguments.done" not in kinds
    assert not {"response.completed", "response.incomplete"} & set(kinds)
    done = [event["item"]["type"] for event in events if event["type"] == "response.output_item.done"]
    assert "function_call" not in done
    added = [event["item"] for event in events if event["type"] == "response.output_item.added"]
    assert len([item for item in added if item["type"] == "function_call"]) == min(1, len(turn.tool_calls))
    if turn.tool_calls and turn.finish != "length":
        deltas = [event for event in events if event["type"] == "response.function_call_arguments.delta"]
        assert "".join(delta["delta"] for delta in deltas) == turn.calls[0]["function"]["arguments"]
    assert b"response.output_item.done" in tail


def test_text_and_reasoning_leave_as_they_come() -> None:
    turn = TURNS["reasoning"]
    live, _ = ASKED.streamed([ASKED.engine_stream(turn)])
    deltas = [event for event in read_events(live) if event["type"].endswith(".delta")]
    said = [(event["type"], event["delta"]) for event in deltas]
    assert said == [
        *(("response.reasoning_text.delta", piece) for piece in ("Say", " ", "it", ".")),
        ("response.output_text.delta", "Hello"),
    ]


def test_without_counts_of_the_engine_there_is_no_usage() -> None:
    live, tail = ASKED.streamed([RECORDED["chat_stream"].body])
    assert assembled(read_events(live + tail))["usage"] is None


def chunk(*deltas: bytes, finish: bytes = b"null", index: int = 0) -> Chunk:
    fields = split_object(b'{"index":%d,"delta":{},"finish_reason":%b}' % (index, finish))
    parts = [Part(index, fields, split_object(delta), None, finished=finish != b"null") for delta in deltas]
    return Chunk(split_object(b'{"id":"c","model":"m","choices":[]}'), parts)


def call(index: int, arguments: str, name: str | None = None) -> bytes:
    head = {"id": f"call_{index}", "type": "function"} if name else {}
    function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
    return json.dumps({"tool_calls": [{"index": index, **head, "function": function}]}).encode()


def new_stream() -> ResponsesStream:
    return Call(stream=True).inquiry.stream(CALL_ID)


def output_of(*chunks: Chunk) -> list[Event]:
    stream = new_stream()
    live = b"".join(map(stream.live, chunks))
    output: list[Event] = assembled(read_events(live + stream.tail()))["output"]
    return output


def said(item: Event) -> str:
    (part,) = item["content"]
    text: str = part.get("text", part.get("refusal"))
    return text


def test_calls_that_are_written_in_turns_are_put_in_order() -> None:
    first, second, text = output_of(
        chunk(call(0, '{"a":', "first")),
        chunk(call(1, '{"b":', "second")),
        chunk(call(0, "1}")),
        chunk(b'{"content":"and "}'),
        chunk(call(1, "2}")),
        chunk(b'{"content":"so"}', finish=b'"tool_calls"'),
    )
    assert (first["name"], first["arguments"]) == ("first", '{"a":1}')
    assert (second["name"], second["arguments"]) == ("second", '{"b":2}')
    assert said(text) == "and so"


def test_reasoning_between_text_and_a_refusal_get_items_of_their_own() -> None:
    output = output_of(
        chunk(b'{"reasoning":"one"}'),
        chunk(b'{"content":"two"}'),
        chunk(b'{"reasoning":"three","content":"four"}'),
        chunk(b'{"refusal":"fi"}'),
        chunk(b'{"refusal":"ve"}'),
        chunk(b"{}", finish=b'"stop"'),
    )
    assert [(item["type"], said(item)) for item in output] == [
        ("reasoning", "one"),
        ("message", "two"),
        ("reasoning", "three"),
        ("message", "four"),
        ("message", "five"),
    ]
    prefixes = [item["id"].removesuffix(f"_{CALL_HEX}_{index}") for index, item in enumerate(output)]
    assert prefixes == ["rs", "msg", "rs", "msg", "msg"]
    assert output[-1]["content"] == [{"type": "refusal", "refusal": "five"}]


def test_reasoning_under_both_names_is_told_once() -> None:
    both = chunk(b'{"reasoning":"once","reasoning_content":"once"}')
    older = chunk(b'{"reasoning_content":" more"}')
    (item,) = output_of(both, older, chunk(b"{}", finish=b'"stop"'))
    assert said(item) == "once more"


def test_only_the_last_item_of_a_reply_cut_short_is_incomplete() -> None:
    output = output_of(
        chunk(b'{"reasoning":"hm"}'),
        chunk(call(0, "{}", "first")),
        chunk(call(1, '{"b":', "second")),
        chunk(b"{}", finish=b'"length"'),
    )
    assert [item["status"] for item in output] == ["completed", "completed", "incomplete"]


def test_other_choices_are_not_told() -> None:
    output = output_of(
        chunk(b'{"content":"mine"}'),
        chunk(b'{"content":"other"}', index=1),
        chunk(b"{}", finish=b'"length"', index=1),
        chunk(b"{}", finish=b'"stop"'),
    )
    assert [(said(item), item["status"]) for item in output] == [("mine", "completed")]


def test_functions_of_a_namespace_are_told_with_it() -> None:
    function = {"type": "function", "name": "spawn", "parameters": {"type": "object"}}
    asked = Call(stream=True, tools=[{"type": "namespace", "name": "agents", "description": "d", "tools": [function]}])
    live, tail = asked.streamed([asked.engine_stream(Turn(tool_calls=[("agents__spawn", "{}"), ("spawn", "{}")]))])
    first, second = assembled(read_events(live + tail))["output"]
    assert (first["name"], first["namespace"]) == ("spawn", "agents")
    assert (second["name"], second.get("namespace")) == ("spawn", None)


def test_text_keeps_the_engine_s_spelling() -> None:
    stream = new_stream()
    assert b'"delta":"\\u00e9\\ud800\\/"' in stream.live(chunk(b'{"content":"\\u00e9\\ud800\\/"}'))
    assert stream.tail().count(b'"text":"\\u00e9\\ud800\\/"') == 4


@pytest.mark.parametrize(
    "calls", [b"5", b"[5]", b'[{"function":5}]', b'[{"function":{"arguments":{}}}]', b'[{"id":7}]', b'[{"name":[]}]']
)
def test_a_delta_that_is_none_is_the_engine_s_fault(calls: bytes) -> None:
    stream = new_stream()
    live = stream.live(chunk(b'{"content":"Gr"}'))
    with pytest.raises(EngineFault, match="a delta of the engine's stream cannot be read"):
        stream.live(chunk(b'{"content":"ue","tool_calls":%b}' % calls))
    # Nothing of it was written: what follows is numbered as if it had not come.
    read_events(live + stream.error_event(SwitchyardError(Kind.UPSTREAM_ERROR, "why"), CALL_ID))


@pytest.mark.parametrize("key", ["content", "reasoning", "reasoning_content", "refusal"])
def test_text_that_is_none_is_the_engine_s_fault(key: str) -> None:
    for value in (b"5", b"[]", b'[{"type":"text","text":"x"}]', b"true"):
        with pytest.raises(EngineFault, match=f"{key} is no text"):
            new_stream().live(chunk(b'{"%b":%b}' % (key.encode(), value)))


def test_a_call_whose_id_is_null_has_an_empty_one() -> None:
    live = new_stream().live(chunk(b'{"tool_calls":[{"index":0,"id":null,"function":{"name":"f","arguments":null}}]}'))
    *_, began = read_events(live)
    assert (began["item"]["call_id"], began["item"]["name"]) == ("", "f")


def test_an_error_in_the_middle_ends_the_stream() -> None:
    stream = new_stream()
    live = stream.live(chunk(b'{"content":"Gr"}'))
    end = stream.error_event(SwitchyardError(Kind.UPSTREAM_ERROR, "the engine's stream ended early"), CALL_ID)
    created, *_, error, failed = read_events(live + end)
    told = {"message": "the engine's stream ended early", "param": None, "code": "upstream_error"}
    assert error.items() >= ({"type": "error", "error": {"type": "server_error", **told}} | told).items()
    assert failed["type"] == "response.failed"
    response = failed["response"]
    assert response["error"] == {"code": "server_error", "message": "the engine's stream ended early"}
    assert response == created["response"] | {"status": "failed", "error": response["error"]}
    with pytest.raises(EngineFault, match="ended early"):
        ASKED.streamed([ASKED.engine_stream(TURNS["text"]).removesuffix(b"data: [DONE]\n\n")])


@pytest.mark.parametrize("name", ["one_tool", "two_tools", "tool_and_text", "stop_sequence", "nothing"])
async def test_the_official_client_reads_a_stream(name: str, engine: ScriptedEngine) -> None:
    live, tail = ASKED.streamed([ASKED.engine_stream(TURNS[name])])
    engine.reply(sse_reply([live, tail], done=False))
    async with (
        openai.AsyncOpenAI(base_url=engine.base_url, api_key="k", max_retries=0) as client,
        client.responses.stream(model="m", input="hi") as stream,
    ):
        response = await stream.get_final_response()
    read = [item.to_dict(exclude_none=True) for item in response.output]
    for item, expected in zip(read, assembled(read_events(live + tail))["output"], strict=True):
        assert expected.items() <= _without_parsed(item).items()
    assert response.usage is not None
    assert response.usage.output_tokens == len(TURNS[name].tokens)


def _without_parsed(item: Event) -> Event:
    content = [{key: value for key, value in part.items() if key != "parsed"} for part in item.get("content", [])]
    return item | {"content": content}


def test_a_stream_is_asked_for_with_counts() -> None:
    assert json.loads(ASKED.prepared.body)["stream_options"] == {"include_usage": True}
    assert "stream_options" not in json.loads(Call(stream=False).prepared.body)


def test_the_response_is_created_when_it_was_asked_for() -> None:
    inquiry = inquired({"input": "hi"}, created_at=1796051603)
    created, _ = read_events(inquiry.stream(CALL_ID).live(chunk(b"{}")))
    assert created["response"]["created_at"] == 1796051603
