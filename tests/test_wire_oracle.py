"""The oracle is checked where the recordings hold both sides of a rule."""

import json
from dataclasses import replace
from typing import Any

import pytest
from wire_oracle import (
    Facts,
    body_facts,
    chunks_of,
    expected_body,
    expected_chunks,
    stream_facts,
    with_usage,
)
from wire_recordings import Recording, recording, recordings

CAPTURED = {recording.name: recording for recording in recordings() if recording.captured}
STREAMS = [recording for recording in CAPTURED.values() if recording.is_stream]
PAIRS = [
    (buffered, CAPTURED[f"{buffered.name}_stream"])
    for buffered in CAPTURED.values()
    if f"{buffered.name}_stream" in CAPTURED
]
# Cut or broken in the middle of a tool call, the engine's two modes tell different stories of the same tokens.
CALL_CUT = {
    "tool_malformed_auto",
    "tool_required_nothink",
    "tool_required_reasoning",
    "tool_truncated_auto",
}


def spelled(chunks: list[dict[str, Any]]) -> str:
    """Values and key order, without what differs between any two calls."""
    return json.dumps([chunk | {"id": "", "created": 0} for chunk in chunks])


def comparable(facts: Facts, buffered: Recording) -> Facts:
    """Without what differs by itself: ids of calls, spacing of arguments (buffered, of named and required calls, the
    engine writes them anew), "" for no content, usage that was not asked for."""
    if buffered.name in CALL_CUT:
        facts = replace(facts, content=None, tool_calls=[], finish_reason="")
    functions = [call["function"] for call in facts.tool_calls]
    calls = [{"name": function["name"], "arguments": json.loads(function["arguments"])} for function in functions]
    return replace(facts, tool_calls=calls, usage=None, content=facts.content or None)


@pytest.mark.parametrize(
    ("captured", "direct"),
    [
        ("chat_stream", "chat_stream_nocapture"),
        ("chat_stream_usage", "chat_stream_nocapture"),
        ("chat_stream_cont_usage", "chat_stream_nocapture"),
        ("chat_stream_usage", "chat_stream"),
        ("chat_stream", "reasoning_excluded_stream"),
    ],
)
def test_a_captured_stream_becomes_the_direct_one(captured: str, direct: str) -> None:
    plain = recording(direct)
    seen = expected_chunks(recording(captured).body, plain.request_body)
    assert spelled(seen) == spelled(chunks_of(plain.body))


@pytest.mark.parametrize(
    ("captured", "direct"), [("chat_plain", "chat_nocapture"), ("reasoning_excluded", "reasoning_excluded")]
)
def test_a_captured_body_becomes_the_direct_one(captured: str, direct: str) -> None:
    plain = recording(direct)
    seen = expected_body(json.loads(recording(captured).body), plain.request_body)
    assert spelled([seen]) == spelled([json.loads(plain.body)])


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.name)
def test_who_asked_for_capture_sees_the_stream_as_it_is(stream: Recording) -> None:
    seen = expected_chunks(stream.body, stream.request_body, whitespace=True)
    assert seen == [chunk for chunk in chunks_of(stream.body) if "error" not in chunk]


def test_usage_added_is_usage_as_recorded() -> None:
    added, recorded = (chunks_of(stream) for stream in (with_usage(recording("chat_stream").body), USAGE.body))
    for usage in (added[-1]["usage"], recorded[-1]["usage"]):
        usage.pop("prompt_tokens_details", None)
        usage.pop("completion_tokens_details", None)
    assert spelled(added) == spelled(recorded)


USAGE = recording("chat_stream_usage")


@pytest.mark.parametrize(("buffered", "stream"), PAIRS, ids=lambda recording: recording.name)
def test_both_modes_give_the_same_facts(buffered: Recording, stream: Recording) -> None:
    of_stream = comparable(stream_facts(with_usage(stream.body)), buffered)
    of_body = comparable(body_facts(json.loads(buffered.body)), buffered)
    assert of_stream == of_body


def test_outcomes() -> None:
    streams = {r.name: stream_facts(with_usage(r.body)).outcome for r in STREAMS}
    bodies = {r.name: body_facts(json.loads(r.body)).outcome for r in CAPTURED.values() if not r.is_stream}
    unusual = {name: outcome for name, outcome in {**streams, **bodies}.items() if outcome != "valid"}
    assert unusual == {
        "abort_abort_requests_stream": "invalid",
        "abort_inference_v1_abort_requests_stream": "invalid",
        "abort_pause_stream": "invalid",
        "engine_death_stream": "failed",
        "n2": "invalid",
        "n2_stream": "invalid",
    }
    assert stream_facts(recording("chat_stream").body).outcome == "invalid", "no usage"


def test_a_cut_stream_failed() -> None:
    stream = USAGE.body
    ends = [end for end in range(len(stream)) if stream[:end].endswith(b"\n\n")]
    assert {stream_facts(stream[:end]).outcome for end in [0, *ends]} == {"failed"}


@pytest.mark.parametrize(
    ("name", "drops"),
    [("trained_tool_auto_stream", 2), ("trained_hello_stream", 0), ("tool_content_plus_call_stream", 0)],
)
def test_whitespace_before_a_call_is_dropped(name: str, drops: int) -> None:
    stream = recording(name).body
    asked = {"stream": True}
    seen, as_engine = expected_chunks(stream, asked), expected_chunks(stream, asked, whitespace=True)
    assert len(as_engine) - len(seen) == drops
    # With ids asked for the chunk stays and only its content goes.
    asked["return_token_ids"] = True
    assert len(expected_chunks(stream, asked)) == len(expected_chunks(stream, asked, whitespace=True))
    contents = [choice["delta"].get("content") for chunk in seen for choice in chunk["choices"]]
    assert (not any(content and content.isspace() for content in contents)) or drops == 0


def test_log_probs_alone_keep_silent_tokens() -> None:
    asked = {"stream": True, "logprobs": True}
    seen = expected_chunks(recording("trained_tool_auto_stream").body, asked, whitespace=True)
    silent = [choice for chunk in seen for choice in chunk["choices"] if not choice["delta"]]
    assert silent
    assert all(choice["token_ids"] is None and choice["logprobs"] for choice in silent)
