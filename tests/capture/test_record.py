"""The stored record of a call: schema v1 field for field, `call` behind it, readable by every strict reader."""

import json
from typing import Any

import jsonschema
import orjson
import pytest
from built_records import (
    CALL,
    DOCS,
    SCHEMA,
    UUID,
    V1,
    VALIDATOR,
    Record,
    built,
    course,
    encoded,
    prepared,
    read,
    record_of,
    streamed,
)
from wire_oracle import with_usage
from wire_recordings import Recording, recordings

from switchyard_py.capture.call import Asked, Generation
from switchyard_py.capture.record import build_record, timestamp
from switchyard_py.engines.vllm import DONE, StreamHarvest, Wants, harvest_reply
from switchyard_py.store.records import placeholder
from switchyard_py.upstream import SSEReader

CAPTURED = [each for each in recordings() if each.captured and "engine_death" not in each.name]


@pytest.mark.parametrize("each", CAPTURED, ids=lambda each: each.name)
def test_every_recorded_call_gives_a_record_of_the_published_form(each: Recording) -> None:
    if each.is_stream:
        found = [event.data for event in SSEReader().feed(with_usage(each.body)) if event.data is not None]
        record = streamed(each.request_body, [data for data in found if data != DONE])
    else:
        record = built(each.request_body, each.body)
    assert record["is_valid"] == (not each.name.startswith(("abort", "n2")))
    assert record["call"]["engine"]["version"] == "0.32.0"
    assert record["messages"][:-1] == each.request_body.get("messages", [])
    assert record["call"]["lossy"] is False


REPLY: Record = {
    "id": "chatcmpl-1",
    "model": "m",
    "prompt_token_ids": [1, 2],
    "usage": {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3},
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "x"},
            "token_ids": [3],
            "logprobs": {"content": [{"logprob": -0.5}]},
            "finish_reason": "stop",
        }
    ],
}
REQUEST: Record = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def choice(**fields: Any) -> Record:
    """The reply with its choice changed."""
    return REPLY | {"choices": [REPLY["choices"][0] | fields]}


def test_identity_and_times_are_written_as_given() -> None:
    record = record_of(
        REQUEST,
        harvest_reply(encoded(REPLY), Wants())[1],
        started_at=1767225600.25,
        first_token_at=1767225600.375,
        finished_at=1767225601.0,
        agent={"session-id": "native"},
        client_request_id="r-1",
        user_agent="agent/1 é",
        changed_in_reply=("reply.whitespace",),
    )
    call = record["call"]
    assert (record["uuid"], record["session_id"], record["parent_session_id"]) == (UUID, "s", "p")
    assert record["captured_at"] == "2026-01-01T00:00:00.500000+00:00"
    assert call["started_at"] == "2026-01-01T00:00:00.250000+00:00"
    assert call["first_token_at"] == "2026-01-01T00:00:00.375000+00:00"
    assert call["finished_at"] == "2026-01-01T00:00:01.000000+00:00"
    assert call["agent"] == {"session-id": "native"}
    assert call["client"] == {"request_id": "r-1", "user_agent": "agent/1 é"}
    assert call["changed"] == ["model", "logprobs", "top_logprobs", "return_token_ids", "reply.whitespace"]
    assert (call["dialect"], call["route"], call["target"], call["retry_of"]) == ("chat", "policy", "t", None)
    assert timestamp(0.0) == "1970-01-01T00:00:00.000000+00:00"


def test_messages_keep_the_agent_s_key_order_and_numbers_their_spelling() -> None:
    request = (
        b'{"messages": [ {"role": "user", "z": 0.10, "content": "\\u00e9", "a": {"y": 1, "b": 1E2}} ], "seed": 1.0}'
    )
    generation = harvest_reply(encoded(REPLY), Wants())[1]
    record = build_record(
        uuid=UUID, session_id="s", parent_session_id=None, captured_at=0.0, asked=prepared(request).asked,
        generation=generation, course=course(), invalid_reasons=[],
    )  # fmt: skip
    read(record)
    assert b'{"role":"user","z":0.10,"content":"\\u00e9","a":{"y":1,"b":1E2}}' in record
    assert b'"seed":1.0' in record


@pytest.mark.parametrize(
    ("tool", "stored"),
    [
        ({"function": {"strict": True, "name": "f", "description": "d", "parameters": {"z": 1, "a": 2}}},
         {"id": "f", "description": "d", "inputSchema": {"jsonSchema": {"z": 1, "a": 2}}}),
        ({"function": {"name": "f"}}, {"id": "f", "description": ""}),
        ({"function": {"name": "f", "parameters": None}}, {"id": "f", "description": ""}),
        ({"name": "f", "input_schema": {}}, {"id": "f", "description": "", "inputSchema": {"jsonSchema": {}}}),
        ({"id": "f", "parameters": {}}, {"id": "f", "description": "", "inputSchema": {"jsonSchema": {}}}),
        ({"function": "odd", "name": "f"}, {"id": "f", "description": ""}),
        ({}, {"id": None, "description": ""}),
    ],
)  # fmt: skip
def test_a_tool_is_stored_in_the_reference_s_form(tool: Record, stored: Record) -> None:
    record = built(REQUEST | {"tools": ["junk", tool]}, REPLY)
    assert record["tools"] == [stored]
    assert json.dumps(record["tools"]) == json.dumps([stored])


@pytest.mark.parametrize("tools", [None, [], "text", {"a": 1}, 5])
def test_tools_is_always_a_list(tools: object) -> None:
    assert built(REQUEST | {"tools": tools}, REPLY)["tools"] == []
    assert built(REQUEST, REPLY)["tools"] == []


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (None, "auto"),
        ("required", "required"),
        ("none", "none"),
        ({"type": "function", "function": {"name": "f"}}, "function"),
        ({"function": {}}, None),
        (5, 5),
    ],
)
def test_tool_choice_is_stored_short_and_as_sent(given: object, stored: object) -> None:
    record = built(REQUEST | {"tool_choice": given}, REPLY)
    assert (record["tool_choice"], record["call"]["tool_choice"]) == (stored, given)
    assert built(REQUEST, REPLY)["call"]["tool_choice"] is None


CALLS = {"message": {"tool_calls": [{"id": "c"}]}}


@pytest.mark.parametrize(
    ("limits", "reply", "truncated"),
    [
        ({}, choice(), False),
        ({}, choice(finish_reason="length"), True),
        ({"max_tokens": 1}, choice(), False),
        ({"max_tokens": 1}, choice(**CALLS), True),
        ({"max_completion_tokens": 1}, choice(**CALLS), True),
        ({"max_tokens": 2}, choice(**CALLS), False),
        ({"max_tokens": 1}, choice(**CALLS) | {"usage": None}, False),
        ({}, choice(**CALLS), False),
    ],
)
def test_a_reply_that_the_token_limit_ended_is_truncated(limits: Record, reply: Record, truncated: bool) -> None:
    assert built(REQUEST | limits, reply)["call"]["truncated"] is truncated


def test_further_choices_are_kept() -> None:
    second = REPLY["choices"][0] | {"index": 1, "token_ids": ["odd"], "stop_reason": 7, "message": {"content": None}}
    record = built(REQUEST, REPLY | {"choices": [*REPLY["choices"], second]})
    assert record["call"]["choices"] == [
        {
            "message": {"role": "assistant"},
            "generation_token_ids": ["odd"],
            "generation_log_probs": [-0.5],
            "finish_reason": "stop",
            "stop_reason": 7,
        }
    ]
    assert record["call"]["invalid_reasons"] == ["more_than_one_choice"]


@pytest.mark.parametrize(
    ("fingerprint", "version"),
    [
        ("vllm-0.32.0-5e93fe0f", "0.32.0"),
        ("vllm-0.33.0.dev1+g12ab-9f", "0.33.0.dev1+g12ab"),
        ("fp_1", None),
        (None, None),
        (5, None),
    ],
)
def test_the_engine_s_version_is_read_off_its_fingerprint(fingerprint: object, version: str | None) -> None:
    engine = built(REQUEST, choice(weight_versions=[{"version": "v1"}]) | {"system_fingerprint": fingerprint})["call"][
        "engine"
    ]
    assert engine == {"name": "vllm", "version": version, "logprobs_mode": None, "weight_versions": [{"version": "v1"}]}


def test_secrets_in_unknown_keys_and_headers_do_not_reach_the_record() -> None:
    request = REQUEST | {
        "aws_secret": "canary",
        "api_key": "canary",
        "extra": {"k": "canary"},
        "metadata": {"k": "canary"},
    }
    assert "canary" not in json.dumps(built(request, REPLY))


SURROGATE = "a\ud800b"


@pytest.mark.parametrize(
    ("request_fields", "reply", "course_fields"),
    [
        ({"messages": [{"role": "user", "content": SURROGATE}]}, REPLY, {}),
        ({"messages": [{"role": "user", SURROGATE: 1}]}, REPLY, {}),
        ({"tools": [{"function": {"name": SURROGATE, "parameters": {SURROGATE: 1}}}]}, REPLY, {}),
        ({"tool_choice": SURROGATE}, REPLY, {}),
        ({"stop": [SURROGATE]}, REPLY, {}),
        ({}, choice(message={"content": SURROGATE}), {}),
        ({}, choice(stop_reason=SURROGATE), {}),
        ({}, choice(finish_reason=SURROGATE), {}),
        ({}, choice(token_ids=[SURROGATE]), {}),
        ({}, REPLY | {"model": SURROGATE}, {}),
        ({}, REPLY | {"usage": {"prompt_tokens": SURROGATE}}, {}),
        ({}, REPLY, {"agent": {"prompt_cache_key": SURROGATE}}),
    ],
)
def test_a_lone_surrogate_is_replaced_and_said_so(request_fields: Record, reply: Record, course_fields: Record) -> None:
    record = record_of(REQUEST | request_fields, harvest_reply(encoded(reply), Wants())[1], **course_fields)
    assert record["call"]["lossy"] is True
    assert "a\ufffdb" in json.dumps(record, ensure_ascii=False)


@pytest.mark.parametrize("number", ["1e400", "-1e400", "9" * 400, "9" * 5000])
def test_a_number_no_reader_can_hold_is_stored_as_text(number: str) -> None:
    request = json.dumps(REQUEST | {"messages": [{"n": 0}], "seed": 0}).replace(": 0", f": {number}")
    record = built(request, REPLY)
    assert record["call"]["lossy"] is True
    assert record["messages"][0]["n"] == record["call"]["sampling"]["seed"] == number
    reply = json.dumps(REPLY | {"usage": {"prompt_tokens": 0.5}}).replace(": 0.5", f": {number}")
    assert built(REQUEST, reply)["call"]["usage"] == {"prompt_tokens": number}


def test_what_was_seen_of_a_failed_call_is_a_record_that_is_not_valid() -> None:
    harvest = StreamHarvest(Wants())
    delta = {"index": 0, "delta": {"content": "x"}, "token_ids": [3], "finish_reason": None}
    harvest.feed(encoded(REPLY | {"choices": [delta]}))
    record = record_of(REQUEST, harvest.generation, ["failed"], streamed=True)
    assert (record["is_valid"], record["call"]["invalid_reasons"]) == (False, ["failed"])
    assert (record["finish_reason"], record["generation_token_ids"]) == (None, [3])
    assert record_of(REQUEST, Generation(), ["failed"])["messages"][-1] == {"role": "assistant"}
    assert Asked().messages is None


def test_the_placeholder_of_a_lost_call_has_the_published_form() -> None:
    VALIDATOR.validate(orjson.loads(placeholder("s", UUID, timestamp(0.0), None).data))


def test_the_published_form_is_strict() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert tuple(SCHEMA["properties"]) == tuple(SCHEMA["required"]) == (*V1, "call")
    call = SCHEMA["$defs"]["call"]
    assert tuple(call["properties"]) == tuple(call["required"]) == CALL
    record = built(REQUEST, REPLY)
    breaches: list[Record] = [
        record | {"extra": 1},
        record | {"call": record["call"] | {"extra": 1}},
        record | {"call": record["call"] | {"sampling": {"api_key": "x"}}},
        record | {"schema_version": 2},
        record | {"tools": None},
        record | {"captured_at": "2026-01-01T00:00:00Z"},
        record | {"is_valid": False},
        record | {"prompt_token_ids": []},
        record | {"generation_log_probs": [None]},
        *({key: value for key, value in record.items() if key != missing} for missing in record),
    ]
    for breach in breaches:
        assert not VALIDATOR.is_valid(breach), breach


def test_every_reason_of_the_published_form_is_explained() -> None:
    page = (DOCS / "record-format.md").read_text()
    reasons = SCHEMA["$defs"]["call"]["properties"]["invalid_reasons"]["items"]["enum"]
    assert [reason for reason in reasons if f"`{reason}`" not in page] == []
    assert [key for key in (*V1, *CALL) if f"`{key}`" not in page] == []
