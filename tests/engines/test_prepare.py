"""From the agent's request to the engine's: what is changed is named, everything else keeps its bytes."""

import json
from typing import Any

import pytest
from built_records import prepared
from hypothesis import given
from hypothesis import strategies as st
from reference_cases import reference_case

from switchyard_py.engines.vllm import Wants, wants_stream
from switchyard_py.engines.vllm.prepare import SAMPLING_KEYS
from switchyard_py.rawjson import split_object

CAPTURE = b'"logprobs":true,"top_logprobs":0,"return_token_ids":true'
CAPTURE_CHANGES = {"model", "logprobs", "top_logprobs", "return_token_ids"}


def sent(body: bytes | dict[str, Any], **options: Any) -> dict[str, Any]:
    """The engine's request, parsed."""
    value: dict[str, Any] = json.loads(prepared(body, **options).body)
    return value


def slices(text: bytes) -> dict[str, bytes]:
    return {key: bytes(value) for key, value in split_object(text).items()}


def test_unknown_fields_reach_the_engine_byte_for_byte_and_in_order() -> None:
    case = reference_case("extra_fields_passthrough")
    fields = {key: value for key, value in case.request_json.items() if key not in ("model", "messages")}
    assert len(fields) == 39
    text = json.dumps(case.body).encode()
    request = prepared(text)
    assert slices(request.body) == slices(text) | {
        "model": b'"real-model"',
        "logprobs": b"true",
        "top_logprobs": b"0",
        "return_token_ids": b"true",
    }
    assert list(slices(request.body)) == [*case.request_json, "logprobs", "top_logprobs", "return_token_ids"]
    assert json.loads(request.body) == case.sent_on
    assert set(request.asked.changed) == CAPTURE_CHANGES


HOSTILE = (
    b'{"z":1,"model":"m","a":0.10,"b":1e400,"c":-0,"d":1E2,"e":123456789012345678901234567890,"f":"\\ud800\\u00e9\\/",'
    b'"messages":[ {"role":"user", "content":"a\\udfffb","z":{"y":1,"x":[1.0,{"b":1,"a":2}]}} ],'
    b'"\\ud800":"\\ud800","sch\xc3\xa4ma":{"zcity":1,"aunit":2},"":null,"temperature":0.70}'
)


def test_spellings_of_numbers_escapes_and_order_survive() -> None:
    assert (
        prepared(HOSTILE).body == HOSTILE.replace(b'"model":"m"', b'"model":"real-model"')[:-1] + b"," + CAPTURE + b"}"
    )
    assert prepared(HOSTILE, captured=False).body == HOSTILE.replace(b'"model":"m"', b'"model":"real-model"')


KEYS = st.text(max_size=6).filter(lambda key: key not in ("model", "stream", "messages") and not key.startswith("aws_"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
).map(lambda value: json.dumps(value).replace("NaN", "1e999").replace("Infinity", "1e400").encode())


@given(st.dictionaries(KEYS, VALUES, max_size=5), st.booleans())
def test_whatever_is_not_named_as_changed_is_not_changed(fields: dict[str, bytes], streamed: bool) -> None:
    members = {json.dumps(key).encode(): value for key, value in fields.items()}
    members |= {b'"model"': b'"m"', b'"stream"': b"true" if streamed else b"false"}
    text = b"{" + b",".join(b"%b : %b" % member for member in members.items()) + b"}"
    request = prepared(text)
    before, after = slices(text), slices(request.body)
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    assert changed == set(request.asked.changed)
    assert changed == CAPTURE_CHANGES | ({"stream_options"} if streamed else set())


CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("wish", "wants", "top_logprobs"),
    [
        ({}, Wants(), 0),
        ({"include_reasoning": False}, Wants(reasoning=False), 0),
        ({"include_reasoning": True}, Wants(), 0),
        ({"logprobs": False}, Wants(), 0),
        ({"logprobs": None}, Wants(), 0),
        ({"logprobs": True}, Wants(log_probs=True), 0),
        ({"logprobs": True, "top_logprobs": 5}, Wants(log_probs=True), 5),
        ({"top_logprobs": 5}, Wants(), 5),
        ({"top_logprobs": None}, Wants(), 0),
        ({"return_token_ids": True}, Wants(prompt_ids=True, token_ids=True), 0),
        ({"return_token_ids": False}, Wants(), 0),
        ({"return_token_ids": None}, Wants(), 0),
        (
            {"include_reasoning": False, "logprobs": True, "return_token_ids": True},
            Wants(prompt_ids=True, reasoning=False),
            0,
        ),
    ],
)
def test_capture_is_on_whatever_the_agent_wishes(
    streamed: bool, wish: dict[str, Any], wants: Wants, top_logprobs: int
) -> None:
    request = prepared(CHAT | wish | {"stream": streamed})
    body = json.loads(request.body)
    assert (body["logprobs"], body["top_logprobs"], body["return_token_ids"]) == (True, top_logprobs, True)
    assert body.get("include_reasoning") in (None, True)
    assert ("include_reasoning" in body) == ("include_reasoning" in wish)
    assert request.wants == wants
    assert request.streamed is streamed
    assert ("stream_options" in body) is streamed
    before = CHAT | wish | {"stream": streamed}
    assert set(request.asked.changed) == {key for key in body if key not in before or body[key] != before[key]}


@pytest.mark.parametrize(
    ("options", "sent_options", "usage"),
    [
        ("absent", {"include_usage": True}, False),
        (None, {"include_usage": True}, False),
        ({}, {"include_usage": True}, False),
        ({"include_usage": False}, {"include_usage": True}, False),
        ({"include_usage": None}, {"include_usage": True}, False),
        ({"include_usage": True}, {"include_usage": True}, True),
        ({"include_usage": "yes"}, {"include_usage": "yes"}, True),
        (
            {"include_usage": True, "continuous_usage_stats": True},
            {"include_usage": True, "continuous_usage_stats": True},
            True,
        ),
        ({"continuous_usage_stats": True}, {"continuous_usage_stats": True, "include_usage": True}, False),
        ({"z": 1, "include_usage": False, "a": 2}, {"z": 1, "include_usage": True, "a": 2}, False),
        ("nonsense", "nonsense", False),
        ([1], [1], False),
    ],
)
def test_usage_is_always_reported_by_a_stream(options: object, sent_options: object, usage: bool) -> None:
    body = CHAT | {"stream": True} | ({} if options == "absent" else {"stream_options": options})
    request = prepared(body)
    assert json.loads(request.body)["stream_options"] == sent_options
    assert request.wants.usage is usage
    assert ("stream_options" in request.asked.changed) is (options != sent_options)
    without = prepared(body | {"stream": False})
    assert slices(without.body).get("stream_options") == slices(json.dumps(body).encode()).get("stream_options")


@pytest.mark.parametrize(
    "value", [b"1e400", b"0.10", b"1E5", b"123456789012345678901234567890", rb'"\ud800\/"', b"[1 , 2]"]
)
def test_stream_options_keep_the_bytes_of_what_the_agent_sent(value: bytes) -> None:
    source = b'{"model":"m","messages":[],"stream":true,"stream_options":{"y":%b,"include_usage":null,"z":1}}' % value
    assert slices(prepared(source).body)["stream_options"] == b'{"y":%b,"include_usage":true,"z":1}' % value


@pytest.mark.parametrize(
    ("value", "streams"),
    [
        (b"true", True), (b"1", True), (b"1.0", True), (b'"true"', True), (b'"YES"', True), (b'"on"', True),
        (b"false", False), (b"0", False), (b"null", False), (b'"no"', False), (b'"off"', False), (b'""', False),
        (b'"y"', True), (b"2", False), (b"[]", False), (b'"\\ud800"', False), ('"ü"'.encode(), False),
    ],
)  # fmt: skip
def test_a_stream_is_asked_for_in_every_spelling_the_engine_takes(value: bytes, streams: bool) -> None:
    assert wants_stream(split_object(b'{"stream":%b}' % value)) is streams
    assert prepared(b'{"stream":%b}' % value).streamed is streams
    assert b'"stream":%b' % value in prepared(b'{"stream":%b}' % value).body


def test_an_uncaptured_call_keeps_its_own_capture_parameters() -> None:
    wish = {"logprobs": False, "top_logprobs": 5, "return_token_ids": False, "stream": True}
    request = prepared(CHAT | wish, captured=False)
    assert json.loads(request.body) == CHAT | wish | {"model": "real-model"}
    assert request.asked.changed == ("model",)


@pytest.mark.parametrize("value", ["id", 5, None, {"a": 1}, ""])
@pytest.mark.parametrize("captured", [True, False])
def test_the_session_field_is_always_removed(value: object, captured: bool) -> None:
    request = prepared(CHAT | {"proxy_x_session_id": value}, captured=captured)
    assert "proxy_x_session_id" not in json.loads(request.body)
    assert "proxy_x_session_id" in request.asked.changed


def test_credentials_of_a_cloud_are_dropped() -> None:
    request = prepared(CHAT | {"aws_access_key_id": "A", "aws_x": 1, "awsome": 2, "nested": {"aws_k": 1}})
    body = json.loads(request.body)
    assert (body["awsome"], body["nested"]) == (2, {"aws_k": 1})
    assert not {"aws_access_key_id", "aws_x"} & body.keys()
    assert set(request.asked.changed) == CAPTURE_CHANGES | {"aws_access_key_id", "aws_x"}


ECHOED = (
    b'[{"role":"user" , "content":"0.10 \\ud83d\\ude00","token_ids":[1]}, '
    b'{"role":"assistant","tool_calls" : [{"token_ids":[5]}],"prompt_token_ids":[1,2],"generation_token_ids":[3],'
    b'"generation_log_probs":[-0.5],"token_ids":null,"x":1.0},'
    b'{"token_ids":[9],"role":"assistant","content":null}, "odd",{"role":"tool","generation_token_ids":[]},'
    b'{"role":"assistant" , "content" : "kept as it is"}]'
)


def test_echoed_token_arrays_are_dropped_from_assistant_messages_and_nothing_else_changes() -> None:
    request = prepared(b'{"model":"m","messages":%b}' % ECHOED)
    assert slices(request.body)["messages"] == (
        b'[{"role":"user" , "content":"0.10 \\ud83d\\ude00","token_ids":[1]},'
        b'{"role":"assistant","tool_calls":[{"token_ids":[5]}],"x":1.0},'
        b'{"role":"assistant","content":null},"odd",{"role":"tool","generation_token_ids":[]},'
        b'{"role":"assistant" , "content" : "kept as it is"}]'
    )
    assert request.asked.messages is not None
    assert bytes(request.asked.messages) == slices(request.body)["messages"]
    assert set(request.asked.changed) == CAPTURE_CHANGES | {
        "messages.prompt_token_ids",
        "messages.generation_token_ids",
        "messages.generation_log_probs",
        "messages.token_ids",
    }


@pytest.mark.parametrize(
    "messages",
    [
        b'[ {"role":"user","token_ids":[1]} , {"content":"\\"token_ids\\""} ]',
        b'[{"role":"assistant","content":"the word \\"token_ids\\" in a text"} ]',
        b'"token_ids"',
        b'{"token_ids":1}',
        b"null",
        b'[ {"role":"assistant","content":"\\ud800"}, 5 ]',
    ],
)
def test_messages_without_echoes_keep_every_byte(messages: bytes) -> None:
    request = prepared(b'{"model":"m","messages":%b}' % messages)
    assert slices(request.body)["messages"] == messages
    assert set(request.asked.changed) == CAPTURE_CHANGES


def test_extra_body_adds_and_wins_over_what_capture_adds() -> None:
    extra = {"temperature": 0.5, "seed": 7, "top_logprobs": 2, "stream_options": {"include_usage": True}}
    body = sent(CHAT | {"seed": 1}, extra_body=extra)
    assert (body["temperature"], body["seed"], body["top_logprobs"]) == (0.5, 1, 2)
    assert "stream_options" not in body
    streamed = sent(CHAT | {"stream": True}, extra_body={"stream_options": {"include_usage": True, "x": 1}})
    assert streamed["stream_options"] == {"include_usage": True, "x": 1}


def test_force_body_overrides_and_drop_body_removes() -> None:
    options: dict[str, Any] = {"force_body": {"temperature": 0, "seed": 7}, "drop_body": ("user", "top_p", "absent")}
    request = prepared(CHAT | {"temperature": 0.5, "user": "u", "top_p": 0.1, "seed": 7}, **options)
    body = json.loads(request.body)
    assert (body["temperature"], body["seed"]) == (0, 7)
    assert not {"user", "top_p"} & body.keys()
    assert set(request.asked.changed) == CAPTURE_CHANGES | {"temperature", "user", "top_p"}


@pytest.mark.parametrize(
    ("limits", "capped"),
    [
        ({}, {"max_tokens": 100}),
        ({"max_tokens": None}, {"max_tokens": 100}),
        ({"max_tokens": 50}, {"max_tokens": 50}),
        ({"max_tokens": 101}, {"max_tokens": 100}),
        ({"max_completion_tokens": 500}, {"max_completion_tokens": 100}),
        ({"max_completion_tokens": 20}, {"max_completion_tokens": 20}),
        ({"max_tokens": 500, "max_completion_tokens": 20}, {"max_tokens": 100, "max_completion_tokens": 20}),
        ({"max_tokens": 10**30}, {"max_tokens": 100}),
        ({"max_tokens": "many"}, {"max_tokens": 100}),
    ],
)
def test_the_token_limit_is_capped(limits: dict[str, Any], capped: dict[str, Any]) -> None:
    request = prepared(CHAT | limits, max_tokens_cap=100)
    body = json.loads(request.body)
    assert {key: value for key, value in body.items() if key in ("max_tokens", "max_completion_tokens")} == capped
    changed = {key for key, value in capped.items() if limits.get(key) != value}
    assert set(request.asked.changed) == CAPTURE_CHANGES | changed


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        ({}, None),
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 6}, 6),
        ({"max_tokens": 5, "max_completion_tokens": 6}, 6),
        ({"max_tokens": 5, "max_completion_tokens": None}, 5),
        ({"max_tokens": "5"}, None),
    ],
)
def test_the_token_limit_that_counts_is_known(limits: dict[str, Any], limit: int | None) -> None:
    assert prepared(CHAT | limits).asked.token_limit == limit


def test_numbers_no_program_can_hold_break_nothing() -> None:
    digits = b"9" * 5000
    text = b'{"model":"m","max_tokens":%b,"top_logprobs":%b,"stream":true,"tools":[{"strict":%b}]}' % (
        digits,
        digits,
        digits,
    )
    request = prepared(text)
    assert slices(request.body)["max_tokens"] == digits
    assert request.asked.token_limit is None


TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"properties": {"text": {"type": "string"}}}}}


@pytest.mark.parametrize(
    ("wish", "constrained"),
    [
        ({}, False),
        ({"tools": [TOOL]}, False),
        ({"tools": [TOOL], "tool_choice": "auto"}, False),
        ({"tools": [TOOL], "tool_choice": "none"}, False),
        ({"tools": [TOOL], "tool_choice": None}, False),
        ({"tools": [TOOL], "tool_choice": "required"}, True),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}}, True),
        ({"tools": [{"type": "function", "function": {"name": "f", "strict": True}}]}, True),
        ({"tools": [{"type": "function", "function": {"name": "f", "strict": False}}]}, False),
        ({"tools": [{"type": "function", "function": {"name": "f", "description": '"strict"'}}]}, False),
        ({"tools": [{"name": "f", "strict": True}]}, True),
        ({"tools": ["strict", 5, {"function": "strict"}]}, False),
        ({"tools": "strict"}, False),
        ({"response_format": {"type": "text"}}, False),
        ({"response_format": None}, False),
        ({"response_format": {"type": "json_object"}}, True),
        ({"response_format": SCHEMA}, True),
        ({"structured_outputs": {"regex": "a"}}, True),
        ({"structured_outputs": None}, False),
        ({"guided_json": {}}, True),
    ],
)
def test_log_probs_taken_under_a_grammar_are_known(wish: dict[str, Any], constrained: bool) -> None:
    assert prepared(CHAT | wish).asked.constrained is constrained


def test_a_record_repeats_the_sampling_parameters_and_never_an_unknown_key() -> None:
    wish = {"temperature": 0.7, "seed": 1, "stop": ["a"], "api_secret": "s", "metadata": {"user_id": "u"}, "user": "u"}
    asked = prepared(CHAT | wish, force_body={"seed": 2}).asked
    assert {key: json.loads(bytes(value)) for key, value in asked.sampling.items()} == {
        "temperature": 0.7,
        "seed": 2,
        "stop": ["a"],
        "top_logprobs": 0,
    }
    assert asked.sampling.keys() <= set(SAMPLING_KEYS)


def test_what_was_asked_is_kept_as_it_reached_the_engine() -> None:
    asked = prepared(b'{"messages":[ {"a":0.10} ],"tools":[ ],"tool_choice": {"type":"function"} }').asked
    assert [bytes(value or b"") for value in (asked.messages, asked.tools, asked.tool_choice)] == [
        b'[ {"a":0.10} ]',
        b"[ ]",
        b'{"type":"function"}',
    ]
    assert prepared({}).asked.messages is None
