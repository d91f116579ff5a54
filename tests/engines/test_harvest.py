"""Recorded replies of a real vLLM, buffered and streamed: the agent's part is exact and so is the record's."""

import itertools
import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from built_records import prepared
from wire_oracle import Facts, body_facts, chunks_of, expected_body, expected_chunks, stream_facts, with_usage
from wire_recordings import recording, recordings

from switchyard_py.capture.call import Choice, Generation
from switchyard_py.dialects.chat import ChatStream
from switchyard_py.engines.vllm import (
    DONE,
    EngineFault,
    StreamHarvest,
    Wants,
    WhitespaceHold,
    harvest_reply,
    invalid_reasons,
    message_of,
)
from switchyard_py.rawjson import decode
from switchyard_py.upstream import SSEReader

STREAMS = {each.name: each for each in recordings() if each.is_stream and "engine_death" not in each.name}
CAPTURED = {name: each for name, each in STREAMS.items() if each.captured}
REPLIES = {each.name: each for each in recordings() if not each.is_stream and each.status == 200}
SMALL = 12_000
EVERY = 31
NEAR = 4

Asked = dict[str, Any]
LOG_PROBS: Asked = {"logprobs": True, "top_logprobs": 0}
TOKEN_IDS: Asked = {"return_token_ids": True}
USAGE: Asked = {"stream_options": {"include_usage": True}}
NO_REASONING: Asked = {"include_reasoning": False}
# What an agent may ask for, in every combination.
ASKED = [
    {key: value for wish in chosen for key, value in wish.items()}
    for count in range(5)
    for chosen in itertools.combinations((LOG_PROBS, TOKEN_IDS, USAGE, NO_REASONING), count)
]
VARIED = (
    "bytes_partial_utf8_stream",
    "chat_stream_cont_usage",
    "chat_stream_metrics",
    "n2_stream",
    "tool_content_plus_call_stream",
    "trained_hello_stream",
    "trained_tool_auto_stream",
)


def wants(asked: Asked) -> Wants:
    """As the proxy finds it out from the agent's request."""
    return prepared({"model": "m", "stream": True} | asked).wants


def events_of(*pieces: bytes) -> tuple[bytes, ...]:
    """The data of the events in a stream that arrives in pieces."""
    reader = SSEReader()
    found = [event.data for piece in pieces for event in reader.feed(piece)]
    return tuple(data for data in found if data is not None)


def passed_on(data: tuple[bytes, ...], wanted: Wants) -> tuple[bytes, bytes, Generation]:
    """The live part and the tail an agent gets of a stream's events, and what was generated."""
    harvest, whitespace, stream = StreamHarvest(wanted), WhitespaceHold(wanted), ChatStream()
    live = [stream.live(shown) for each in data for chunk in harvest.feed(each) for shown in whitespace.feed(chunk)]
    generation = harvest.end()
    assert whitespace.end() == []
    return b"".join(live), stream.tail(), generation


def written(chunks: list[dict[str, Any]]) -> bytes:
    """A whole stream as vLLM writes it."""
    return b"".join(b"data: " + compact(chunk) + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"


def compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def cuts(body: bytes) -> Iterator[int]:
    """Every place to cut a small stream; of a larger one every 31st and all near the end of an event."""
    if len(body) <= SMALL:
        return iter(range(len(body) + 1))
    ends = [match.end() for match in re.finditer(rb"\n\n", body)]
    near = {at for end in ends for at in range(end - NEAR, end + NEAR + 1)}
    return iter(sorted(near | set(range(0, len(body), EVERY))))


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_cut_anywhere_gives_what_the_agent_must_see(name: str) -> None:
    body = STREAMS[name].body
    # What follows depends on the events only, so equal ones need no second look.
    arrivals = {events_of(body[:cut], body[cut:]) for cut in cuts(body)}
    for data in arrivals:
        live, tail, generation = passed_on(data, wants({}))
        assert live + tail == written(expected_chunks(body, {}))
        check_generation(generation, body)


@pytest.mark.parametrize("asked", ASKED, ids=" ".join)
@pytest.mark.parametrize("name", VARIED)
def test_every_combination_of_wishes_is_honoured(name: str, asked: Asked) -> None:
    body = with_usage(CAPTURED[name].body)
    live, tail, generation = passed_on(events_of(body), wants(asked))
    assert live + tail == written(expected_chunks(body, asked))
    assert not any(choice["finish_reason"] for chunk in chunks_of(live) for choice in chunk["choices"])
    check_generation(generation, body)


@pytest.mark.parametrize("name", sorted(CAPTURED.keys() - set(VARIED)))
def test_capture_shows_to_whom_asked_for_it_only(name: str) -> None:
    body = with_usage(CAPTURED[name].body)
    for asked in ({}, LOG_PROBS | TOKEN_IDS | USAGE):
        live, tail, _ = passed_on(events_of(body), wants(asked))
        assert live + tail == written(expected_chunks(body, asked))


def check_generation(generation: Generation, body: bytes) -> None:
    """What was harvested is what the stream says."""
    seen = stream_facts(body)
    check_facts(generation, seen)
    for index, choice in enumerate(generation.choices):
        ids = [
            each.get("token_ids") or []
            for chunk in chunks_of(body)
            for each in chunk["choices"]
            if each["index"] == index
        ]
        assert (choice.token_ids or []) == [token for chunk_ids in ids for token in chunk_ids]
    message = {key: decode(value) for key, value in generation.choices[0].message.items()}
    expected = {"content": seen.content, "tool_calls": seen.tool_calls, "reasoning": seen.reasoning}
    assert {key: value for key, value in message.items() if value} == {
        key: value for key, value in expected.items() if value
    }
    assert ("content" in message) == bool(seen.content or not (seen.tool_calls or seen.reasoning))
    assert list(message) == [key for key in expected if key in message]


def check_facts(generation: Generation, seen: Facts) -> None:
    choice = generation.choices[0]
    assert decode(generation.prompt_ids) == seen.prompt_token_ids
    assert decode(generation.usage) == seen.usage
    assert len(generation.choices) == seen.choices
    assert (choice.token_ids or []) == seen.token_ids
    assert (choice.log_probs or []) == seen.logprobs
    assert (decode(choice.finish_reason), decode(choice.stop_reason)) == (seen.finish_reason, seen.stop_reason)
    assert choice.flaws == []
    assert (invalid_reasons(generation) == []) == (seen.outcome == "valid")


@pytest.mark.parametrize("name", CAPTURED)
def test_a_whole_stream_with_usage_is_proved_complete(name: str) -> None:
    generation = passed_on(events_of(with_usage(CAPTURED[name].body)), Wants())[2]
    reasons = []
    if name.startswith("n2"):
        reasons.append("more_than_one_choice")
    if name.startswith("abort"):
        reasons.append("aborted")
    assert invalid_reasons(generation) == reasons


def test_the_captured_stream_is_passed_on_as_the_one_that_was_recorded_without_capture() -> None:
    def without_id(stream: bytes) -> bytes:
        return re.sub(rb'"id":"chatcmpl-\w+"', b'"id":"x"', stream)

    plain = recording("chat_stream_nocapture").body
    for name in ("chat_stream", "chat_stream_usage"):
        live, tail, _ = passed_on(events_of(recording(name).body), wants({}))
        assert without_id(live + tail) == without_id(plain).rstrip(b"\n") + b"\n\n", name


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_that_ends_at_any_event_before_its_end_is_a_fault(name: str) -> None:
    data = events_of(STREAMS[name].body)
    assert data[-1] == DONE
    for count in range(len(data)):
        harvest = StreamHarvest(Wants())
        shown = [chunk for each in data[:count] for chunk in harvest.feed(each)]
        assert not any(chunk.finishes for chunk in shown)
        with pytest.raises(EngineFault, match="ended early"):
            harvest.end()
        kept = harvest.generation.choices
        seen = stream_facts(b"".join(b"data: " + each + b"\n\n" for each in data[:count]))
        assert (
            [kept[0].token_ids or [], kept[0].log_probs or []] == [seen.token_ids, seen.logprobs] if kept else not count
        )


def test_done_alone_proves_nothing() -> None:
    role = b'{"id":"c","model":"m","choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":null}]}'
    for data, says in (([DONE], "no choices"), ([role, DONE], "no finish reason")):
        harvest = StreamHarvest(Wants())
        for each in data:
            harvest.feed(each)
        with pytest.raises(EngineFault, match=says):
            harvest.end()


def test_an_engine_that_dies_ends_its_stream_with_a_fault_before_done() -> None:
    data = events_of(recording("engine_death_stream").body)
    harvest = StreamHarvest(Wants())
    for each in data[:-2]:
        harvest.feed(each)
    with pytest.raises(EngineFault, match="EngineCore encountered an issue") as caught:
        harvest.feed(data[-2])
    assert data[-1] == DONE
    given = caught.value.given
    assert given is not None
    assert json.loads(given) == {"error": json.loads(data[-2])["error"]}
    assert harvest.generation.choices[0].token_ids


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b'"text"', b'{"choices":5}', b'{"choices":[5]}', b'{"choices":[{"index":0,"delta":5}]}',
     b'{"choices":[{"index":-1,"delta":{}}]}', b'{"choices":[{"index":"0","delta":{}}]}', b'{"a":"\xff"}',
     b'{"choices":[{"index":999999,"delta":{}}]}', b'{"choices":[{"index":0,"delta":{"content":NaN}}]}'],
)  # fmt: skip
def test_an_event_that_is_no_chunk_is_a_fault(data: bytes) -> None:
    with pytest.raises(EngineFault, match="cannot be read"):
        StreamHarvest(Wants()).feed(data)


@pytest.mark.parametrize("after", [b'{"choices":[{"index":0,"delta":{"content":"x"}}]}', b'{"error":{}}', b"nonsense"])
def test_what_follows_done_is_none_of_the_reply(after: bytes) -> None:
    harvest = StreamHarvest(Wants())
    for chunk in chunks_of(with_usage(recording("trained_hello_stream").body)):
        harvest.feed(json.dumps(chunk).encode())
    harvest.feed(DONE)
    assert harvest.feed(after) == []
    assert invalid_reasons(harvest.end()) == []


def test_a_stream_that_says_nothing_but_done_may_be_spaced() -> None:
    harvest = StreamHarvest(Wants())
    harvest.feed(b'{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}')
    assert len(harvest.feed(b" [DONE] ")) == 1
    assert harvest.done


@pytest.mark.parametrize("asked", [{}, LOG_PROBS | TOKEN_IDS, TOKEN_IDS | NO_REASONING], ids=" ".join)
@pytest.mark.parametrize("name", REPLIES)
def test_a_buffered_reply_is_the_engine_s_without_what_was_not_asked_for(name: str, asked: Asked) -> None:
    body = REPLIES[name].body
    answer, generation = harvest_reply(body, wants(asked))
    reply = json.loads(body)
    assert answer == compact(expected_body(reply, asked))
    check_facts(generation, body_facts(reply))
    for choice, sent in zip(generation.choices, reply["choices"], strict=True):
        message = {key: decode(value) for key, value in choice.message.items()}
        kept = ("content", "tool_calls", "reasoning")
        assert message == {key: sent["message"][key] for key in kept if sent["message"].get(key) is not None}
    for key in ("id", "model", "system_fingerprint"):
        assert decode(getattr(generation, key)) == reply[key]


@pytest.mark.parametrize(
    ("name", "reasons"),
    [
        ("chat_plain", []),
        ("tool_parallel_two", []),
        ("n2", ["more_than_one_choice"]),
        ("logprobs_false_ids_true", ["no_generation_log_probs"]),
        ("reasoning_excluded", ["no_generation_token_ids", "no_generation_log_probs"]),
        ("chat_nocapture", ["no_prompt_token_ids", "no_generation_token_ids", "no_generation_log_probs"]),
    ],
)
def test_a_reply_that_is_not_proved_complete_says_why(name: str, reasons: list[str]) -> None:
    assert invalid_reasons(harvest_reply(REPLIES[name].body, Wants())[1]) == reasons


def without_call_identity(reply: bytes) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(reply)
    return value | {"id": None, "created": None}


def test_what_an_agent_gets_is_what_was_recorded_without_capture() -> None:
    answer, _ = harvest_reply(recording("chat_plain").body, wants({}))
    assert without_call_identity(answer) == without_call_identity(recording("chat_nocapture").body)


def test_reasoning_that_was_not_asked_for_is_hidden_as_the_engine_does() -> None:
    asked = wants(LOG_PROBS | TOKEN_IDS | NO_REASONING)
    answer = without_call_identity(harvest_reply(recording("reasoning").body, asked)[0])
    plain = without_call_identity(recording("reasoning_excluded").body)
    assert answer.pop("usage") != plain.pop("usage"), "the two were recorded with different limits"
    assert answer == plain


PAIRS = [name for name in REPLIES if f"{name}_stream" in CAPTURED and not name.startswith("abort")]


@pytest.mark.parametrize("name", PAIRS)
def test_buffered_and_streamed_the_same_call_gives_the_same_triple(name: str) -> None:
    buffered = harvest_reply(REPLIES[name].body, Wants())[1]
    streamed = passed_on(events_of(CAPTURED[f"{name}_stream"].body), Wants())[2]
    assert decode(buffered.prompt_ids) == decode(streamed.prompt_ids)
    for one, other in zip(buffered.choices, streamed.choices, strict=True):
        assert one.token_ids == other.token_ids
        assert one.log_probs == other.log_probs


def test_there_are_pairs() -> None:
    assert len(PAIRS) >= 20


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "cannot be read"),
        (b"[]", "cannot be read"),
        (b"null", "cannot be read"),
        (b"<html>", "cannot be read"),
        (b'{"choices":[{"message":NaN}]}', "cannot be read"),
        (b"{}", "no choices"),
        (b'{"choices":[]}', "no choices"),
        (b'{"choices":null}', "no choices"),
        (b'{"choices":{}}', "cannot be read"),
        (b'{"choices":[{"message":"text","finish_reason":"stop"}]}', "cannot be read"),
        (b'{"choices":[{"message":{}}]}', "no finish reason"),
        (b'{"choices":[{"message":{},"finish_reason":null}]}', "no finish reason"),
        (b'{"error":{"message":"why","code":500}}', "^why$"),
        (b'{"error":"why"}', "reported an error: why$"),
        (b'{"error":[]}', "reported an error$"),
        (b'{"error":{"message":5}}', "reported an error$"),
    ],
)
def test_a_reply_that_is_no_answer_is_a_fault(body: bytes, says: str) -> None:
    with pytest.raises(EngineFault, match=says):
        harvest_reply(body, Wants())


@pytest.mark.parametrize("error", [b'"why"', b'""', b"[]", b"{}", b"0", b"false", b'{"message":null}'])
def test_an_error_in_another_shape_is_not_passed_on_as_it_is(error: bytes) -> None:
    for take in (partial(harvest_reply, wants=Wants()), StreamHarvest(Wants()).feed):
        with pytest.raises(EngineFault) as caught:
            take(b'{"error":%b}' % error)
        assert caught.value.given is None


def test_a_reply_keeps_spellings_nobody_decodes() -> None:
    body = (
        b'{ "id":"c", "z\xc3\xa9":0.10,"a":[1e400, "\\ud800"],"choices":[ {"index":0,"finish_reason":"stop",'
        b'"message":{"content":"\\u0041\\ud800","x": 1.0},"token_ids":[1],"logprobs":{"content":[]} } ],"big":'
        + b"9" * 5000
        + b"}"
    )
    answer, generation = harvest_reply(body, Wants())
    assert answer == (
        b'{"id":"c","z\xc3\xa9":0.10,"a":[1e400, "\\ud800"],"choices":[{"index":0,"finish_reason":"stop",'
        b'"message":{"content":"\\u0041\\ud800","x": 1.0},"token_ids":null,"logprobs":null}],"big":'
        + b"9" * 5000
        + b"}"
    )
    assert bytes(generation.choices[0].message["content"]) == b'"\\u0041\\ud800"'


def both_ways(ids: str, log_probs: str) -> list[Choice]:
    """One choice, harvested from a buffered reply and from a stream's only chunk."""
    part = f'"index":0,"finish_reason":"stop","token_ids":{ids},"logprobs":{log_probs}'
    harvest = StreamHarvest(Wants())
    harvest.feed(('{"choices":[{"delta":{"content":"x"},' + part + "}]}").encode())
    harvest.feed(DONE)
    buffered = harvest_reply(('{"choices":[{"message":{"content":"x"},' + part + "}]}").encode(), Wants())[1]
    return [buffered.choices[0], harvest.end().choices[0]]


@pytest.mark.parametrize(
    ("ids", "kept"),
    [
        ('["1"]', b'["1"]'), ("[1.0]", b"[1.0]"), ("[true]", b"[true]"), ("5", b"5"), ("[-1]", b"[-1]"),
        ("[9223372036854775808]", b"[9223372036854775808]"), ("[null]", b"[null]"),
    ],
)  # fmt: skip
def test_ids_that_are_none_are_kept_as_they_came_and_flagged(ids: str, kept: bytes) -> None:
    for choice in both_ways(ids, "null"):
        assert not isinstance(choice.token_ids, list)
        assert bytes(choice.token_ids or b"") == kept
        assert choice.flaws == ["generation_token_ids_malformed"]


@pytest.mark.parametrize(
    ("log_probs", "kept", "flawed"),
    [
        ('{"content":[{"logprob":-0.10},{"logprob":-1},{"logprob":0}]}', [-0.1, -1.0, 0.0], False),
        ('{"content":[{"logprob":-9999.0}]}', [-9999.0], False),
        ('{"content":[{"logprob":-1.0000000000000002e-7}]}', [-1.0000000000000002e-07], False),
        ('{"content":[]}', [], False),
        ('{"content":null}', None, True),
        ("{}", None, True),
        ('{"content":[{"logprob":null},{"logprob":-1}]}', [None, -1.0], True),
        ('{"content":[{"logprob":true}]}', [None], True),
        ('{"content":[{"logprob":1e400}]}', [None], True),
        ('{"content":["x",{}]}', [None, None], True),
        ('{"content":5}', None, True),
        ("[]", None, True),
        ("null", None, False),
    ],
)
def test_log_probs_that_are_no_numbers_leave_a_gap_and_are_flagged(
    log_probs: str, kept: list[float | None] | None, flawed: bool
) -> None:
    for choice in both_ways("null", log_probs):
        assert choice.log_probs == kept
        assert choice.flaws == ["generation_log_probs_malformed"] * flawed


def test_flawed_chunks_do_not_hide_the_good_ones() -> None:
    harvest = StreamHarvest(Wants())
    part = '{"choices":[{"index":0,"delta":{"content":"x"},"token_ids":%s,"logprobs":{"content":[{"logprob":%s}]}}]}'
    for ids, log_prob in (("[1]", "-1"), ('["x"]', "null"), ("[3]", "-3")):
        harvest.feed((part % (ids, log_prob)).encode())
    choice = harvest.generation.choices[0]
    assert choice.token_ids == [1, 3]
    assert choice.log_probs == [-1.0, None, -3.0]
    assert choice.flaws == ["generation_token_ids_malformed", "generation_log_probs_malformed"]


def test_white_space_is_content_unless_it_only_led_up_to_a_tool_call() -> None:
    call = {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}
    for deltas, content in (
        ([{"content": "\n"}], "\n"),
        ([{"reasoning": "r"}, {"content": "\n"}], "\n"),
        ([{"reasoning": "r"}, {"content": ""}], None),
        ([{"content": "\n"}, call], None),
        ([{"content": "\n"}, {"content": "x"}, call], "\nx"),
        ([{"role": "assistant", "content": ""}], ""),
    ):
        harvest = StreamHarvest(Wants())
        for delta in deltas:
            harvest.feed(compact({"choices": [{"index": 0, "delta": delta}]}))
        assert decode(harvest.generation.choices[0].message.get("content")) == content


def test_weight_versions_are_taken_where_the_engine_names_them() -> None:
    spans = b'[{"version":"v1","start":0,"end":1}]'
    harvest = StreamHarvest(Wants())
    harvest.feed(b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop","weight_versions":%b}]}' % spans)
    assert bytes(harvest.generation.choices[0].weight_versions or b"") == spans


def test_the_text_of_an_error_is_found_in_the_openai_shape_only() -> None:
    assert message_of(b'{"error":{"message":"why"}}') == "why"
    for other in (b'{"error":"why"}', b'{"error":{"message":5}}', b'{"detail":"why"}', b"[]", b"", b"why", b"\xff"):
        assert message_of(other) is None
